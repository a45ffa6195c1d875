package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/tlsfile"
)

// Open returns a Backend on the cluster that a URL names, with a client of its own, which Close closes:
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?password-file=...]
//	etcds://[user:password@]host[:port][,host[:port]...][/prefix][?tls_ca=...&tls_cert=...&tls_key=...&tls_server_name=...]
//
// etcds is TLS. tls_ca, tls_cert and tls_key name PEM files: the certificate authorities of the servers (default: those of the system), a
// client certificate and its key. They are read again for each connection. tls_server_name is the name that the certificates of all servers
// must have, instead of their hosts. ca, cert, key and server-name are other names for these parameters. The default port is 2379, and the
// default prefix is [DefaultPrefix]. Better keep a password in a file, which password-file names, and which is read when the client logs in.
// No error of this package shows a password. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	d, prefix, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(opts)
	if prefix != "" {
		all = append(all, WithPrefix(prefix))
	}
	return newBackend(d, all)
}

// Opener returns Open with these options, for config.WithOpener, for the schemes etcd and etcds.
func Opener(opts ...Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}

// errURL does not show the URL, which may contain a password.
var errURL = errors.New("etcdlock: not the URL of a cluster: want etcd://host:port,host:port/prefix or etcds://, with / ? # and @ in a " +
	"password percent-encoded")

const (
	scheme, schemeTLS = "etcd", "etcds"
	defaultPort       = "2379" // etcd's
)

// parseURL returns what makes the client, and the prefix.
func parseURL(text string) (*dialer, string, error) {
	u, err := openurl.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != scheme && u.Scheme != schemeTLS {
		return nil, "", errURL
	}
	u.RawQuery = tlsfile.Renamed(u.RawQuery)
	d := &dialer{}
	d.files, d.passwordFile, err = openurl.Access(u, schemeTLS)
	d.cfg.Username = u.User.Username()
	d.cfg.Password, _ = u.User.Password()
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("etcdlock: %w", err)
	case d.passwordFile == "" && d.cfg.Username != "" && d.cfg.Password == "":
		return nil, "", errors.New("etcdlock: the URL has a user without a password")
	}
	web := "http"
	if u.Scheme == schemeTLS {
		web = "https"
		d.cfg.TLS, err = d.files.Config("")
	}
	for _, host := range openurl.WithPorts(u.Host, defaultPort) {
		d.cfg.Endpoints = append(d.cfg.Endpoints, (&url.URL{Scheme: web, Host: host}).String())
	}
	return d, u.Path, err
}

// dialer makes the client when it is first needed: with a user it logs in at once.
type dialer struct {
	cfg          clientv3.Config
	passwordFile string
	files        tlsfile.Files // of TLS, if cfg has it

	mu     sync.Mutex
	client *clientv3.Client // guarded by mu; the one of New, or ours once it is made
	own    bool             // guarded by mu
	busy   chan struct{}    // guarded by mu; closed when the log-in under way has ended; nil: none is
	closed bool             // guarded by mu

	logging *login         // guarded by mu; nil: none is under way
	logins  sync.WaitGroup // Add under mu, unless closed
}

const (
	// dialTimeout bounds how long a new client waits for a log-in, loginTimeout the log-in, which a busy server may answer late.
	dialTimeout  = 2 * time.Second
	loginTimeout = 2 * dialTimeout
	// pingAfter finds connections that are dead, the shortest that the library takes.
	pingAfter, pingTimeout = 10 * time.Second, 3 * time.Second
)

// reconnects are quick: a lock waits for them.
var reconnects = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
}

// get returns the client. One caller makes it, the others wait.
func (d *dialer) get(ctx context.Context) (*clientv3.Client, error) {
	for {
		d.mu.Lock()
		client, busy, closed := d.client, d.busy, d.closed
		if client == nil && busy == nil && !closed {
			d.busy = make(chan struct{})
		}
		d.mu.Unlock()
		switch {
		case closed:
			return nil, distributed.ErrClosed
		case client != nil:
			return client, nil
		case busy == nil:
			return d.make()
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, unreached(ctx.Err())
		}
	}
}

func (d *dialer) make() (*clientv3.Client, error) {
	client, err := d.dial()
	d.mu.Lock()
	close(d.busy)
	d.busy = nil
	late := d.closed
	if err == nil && !late {
		d.client, d.own = client, true
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		return nil, loginError(err)
	case late:
		_ = client.Close()
		return nil, distributed.ErrClosed
	}
	return client, nil
}

func (d *dialer) dial() (*clientv3.Client, error) {
	cfg, err := d.config()
	if err != nil {
		return nil, err
	}
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(d.intercept))
	return clientv3.New(cfg)
}

// config returns that of a client, with the password of now.
func (d *dialer) config() (clientv3.Config, error) {
	cfg := d.cfg
	cfg.DialTimeout, cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout, cfg.Logger = dialTimeout, pingAfter, pingTimeout, zap.NewNop()
	cfg.DialOptions = []grpc.DialOption{grpc.WithConnectParams(reconnects)}
	if cfg.TLS != nil {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(fresh{credentials.NewTLS(cfg.TLS), d.files}))
	}
	if d.passwordFile != "" {
		password, err := passfile.Read(d.passwordFile)
		if err != nil {
			return cfg, fmt.Errorf("the password file: %w", err)
		}
		cfg.Password = password
	}
	return cfg, nil
}

// fresh are credentials that read their files for each handshake.
type fresh struct {
	credentials.TransportCredentials
	files tlsfile.Files
}

// ClientHandshake implements credentials.TransportCredentials.
func (f fresh) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, err := f.files.Config("")
	if err != nil {
		return nil, nil, err
	}
	// The library takes the name from the authority alone, which is the host.
	return credentials.NewTLS(c).ClientHandshake(ctx, cmp.Or(c.ServerName, authority), raw)
}

// Clone implements credentials.TransportCredentials.
func (f fresh) Clone() credentials.TransportCredentials {
	return fresh{f.TransportCredentials.Clone(), f.files}
}

func (d *dialer) close() {
	d.mu.Lock()
	client, own := d.client, d.own
	d.closed = true
	if d.logging != nil {
		d.logging.cancel()
	}
	d.mu.Unlock()
	d.logins.Wait()
	if own {
		_ = client.Close()
	}
}
