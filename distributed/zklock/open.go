package zklock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tlsfile"
)

// Open returns a Backend on the ensemble that a URL names:
//
//	zk://[user[:password]@]host[:port][,host[:port]...][/chroot][?password-file=...]
//	zks://[user[:password]@]host[:port][,host[:port]...][/chroot][?tls_ca=...&tls_cert=...&tls_key=...&tls_server_name=...]
//
// zks is TLS. tls_ca, tls_cert and tls_key name PEM files: the authorities that vouch for the servers (default: those of the system), a client
// certificate and its key. They are read again for each connection. tls_server_name is what the certificates of all servers must name in
// place of their hosts. The port is 2181 if there is none, also over TLS. All nodes are kept below the chroot (default [DefaultRoot]),
// which is created if it is missing. A password is better kept in a file, which password-file names: see [WithAuthFile]. No error of this
// package shows one. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	servers, u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	fromURL, err := parameters(u)
	if err != nil {
		return nil, err
	}
	all := append(fromURL, opts...)
	if strings.Trim(u.Path, "/") != "" {
		all = append(all, WithRoot(u.Path))
	}
	return New(servers, all...)
}

// Opener returns an Open for config.WithOpener, for the schemes zk and zks.
func Opener(opts ...Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return func(_ context.Context, u *url.URL) (distributed.Backend, error) {
		b, err := Open(u.String(), opts...)
		if err != nil {
			return nil, err // not a nil *Backend in an interface
		}
		return b, nil
	}
}

const passwordFile = "password-file"

// parameters returns what the URL says of user, password and TLS.
func parameters(u *url.URL) (all []Option, err error) {
	files, rest, err := tlsfile.Take(u.RawQuery, u.Scheme, u.Scheme == schemeTLS)
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	q, err := url.ParseQuery(rest)
	file := q.Get(passwordFile)
	password, has := u.User.Password()
	switch {
	case err != nil, len(q) > 1, len(q) == 1 && file == "":
		return nil, errors.New("zklock: the URL has an unknown parameter: want " + passwordFile +
			", and with zks also tls_ca, tls_cert, tls_key, tls_server_name")
	case file != "" && (has || u.User.Username() == ""):
		return nil, errors.New("zklock: " + passwordFile + " wants a user in the URL, and no password")
	case file != "":
		all = append(all, WithAuthFile(u.User.Username(), file))
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

// hostPattern is one server: a name or an address, and a port.
var hostPattern = regexp.MustCompile(`^(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)

// parseURL splits off the servers, of which there may be several, and leaves the rest to net/url.
func parseURL(text string) ([]string, *url.URL, error) {
	kind, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if kind != scheme && kind != schemeTLS || strings.ContainsAny(tail, "@#") {
		return nil, nil, errURL
	}
	at := strings.LastIndexByte(authority, '@') + 1
	u, err := url.Parse(kind + "://" + authority[:at] + tail)
	if err != nil {
		return nil, nil, errURL
	}
	servers := strings.Split(authority[at:], ",")
	for i, host := range servers {
		if !hostPattern.MatchString(host) {
			return nil, nil, errURL
		}
		servers[i] = withPort(host)
	}
	return servers, u, nil
}

// defaultPort is ZooKeeper's.
const defaultPort = "2181"

func withPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host
	}
	return host + ":" + defaultPort
}
