package zklock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/openurl"
)

// Open returns a Backend on the ensemble that a URL names:
//
//	zk://[user[:password]@]host[:port][,host[:port]...][/chroot][?password-file=...]
//	zks://[user[:password]@]host[:port][,host[:port]...][/chroot][?tls_ca=...&tls_cert=...&tls_key=...&tls_server_name=...]
//
// zks is TLS. tls_ca, tls_cert and tls_key name PEM files: the certificate authorities of the servers (default: those of the system), a
// client certificate and its key. They are read again for each connection. tls_server_name is the name that the certificates of all servers
// must have, instead of their hosts. The default port is 2181, also over TLS. All nodes are kept below the chroot (default [DefaultRoot]),
// which is created if it is missing. Better keep a password in a file, which password-file names: see [WithAuthFile]. No error of this
// package shows a password. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != scheme && u.Scheme != schemeTLS {
		return nil, errURL
	}
	fromURL, err := parameters(u)
	if err != nil {
		return nil, err
	}
	all := append(fromURL, opts...)
	if strings.Trim(u.Path, "/") != "" {
		all = append(all, WithRoot(u.Path))
	}
	return New(strings.Split(u.Host, ","), all...)
}

// Opener returns Open with these options, for config.WithOpener, for the schemes zk and zks.
func Opener(opts ...Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}

// parameters returns what the URL says of user, password and TLS.
func parameters(u *url.URL) (all []Option, err error) {
	files, passwordFile, err := openurl.Access(u, schemeTLS)
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	switch password, _ := u.User.Password(); {
	case passwordFile != "":
		all = append(all, WithAuthFile(u.User.Username(), passwordFile))
	case u.User != nil:
		all = append(all, WithAuth(u.User.Username(), password))
	}
	if u.Scheme == schemeTLS {
		all = append(all, func(s *settings) { s.dial = files.Dial })
	}
	return all, nil
}

const scheme, schemeTLS = "zk", "zks"

// errURL does not show the URL, which may contain a password.
var errURL = errors.New("zklock: not the URL of an ensemble: want zk://host:port,host:port/chroot or zks://, with / ? # and @ in a password " +
	"percent-encoded")

// defaultPort is ZooKeeper's.
const defaultPort = "2181"
