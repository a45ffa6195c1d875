package natslock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/tlsfile"
)

// DefaultStream is the stream of locks, unless WithStream or a URL names another.
const DefaultStream = "wllock"

type settings struct {
	stream   string
	replicas int
}

// Option changes how a Backend works.
type Option func(*settings)

// WithStream names the stream: letters, digits, _ and -.
func WithStream(name string) Option { return func(s *settings) { s.stream = name } }

// WithReplicas says how many servers keep the stream if it has to be made: 1 to 5 (default 1). With 3 the locks survive the loss of one.
func WithReplicas(n int) Option { return func(s *settings) { s.replicas = n } }

// quiet keeps the client from printing errors, which callers get.
func quiet(*nats.Conn, *nats.Subscription, error) {}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// New returns a Backend over a connection, which stays the caller's. It asks nothing yet. Connect with nats.ReconnectBufSize(-1): else a request
// that is made while there is no connection is sent later.
func New(conn *nats.Conn, opts ...Option) (*Backend, error) {
	s := &store{set: settings{stream: DefaultStream, replicas: 1}, conn: conn}
	if err := openurl.Apply("natslock", &s.set, opts); err != nil {
		return nil, err
	}
	switch {
	case conn == nil:
		return nil, errors.New("natslock: the connection is nil")
	case !streamName.MatchString(s.set.stream):
		return nil, fmt.Errorf("natslock: the stream %q: want 1 to 64 letters, digits, _ and -", s.set.stream)
	case s.set.replicas < 1 || s.set.replicas > 5:
		return nil, fmt.Errorf("natslock: %d replicas: want 1 to 5", s.set.replicas)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("natslock: %w", err)
	}
	s.js = js
	return &Backend{register.New("natslock", s), s}, nil
}

const (
	scheme, schemeTLS = "nats", "natss"
	defaultPort       = "4222" // NATS's
	// reconnectWait is short: a lock waits for it.
	reconnectWait = 100 * time.Millisecond
)

// errURL does not show the URL, which may contain a password.
var errURL = errors.New("natslock: not the URL of servers: want nats://host:port,host:port/stream or natss://, with / ? # and @ in a password " +
	"percent-encoded")

// Open returns a Backend on the servers that a URL names, with a connection of its own, which Close closes:
//
//	nats://[user:password@]host[:port][,host[:port]...][/stream][?replicas=3][&creds=...][&password-file=...]
//	natss://[user:password@]host[:port][,host[:port]...][/stream][?replicas=3][&creds=...][&tls_ca=...&tls_cert=...&tls_key=...&tls_server_name=...]
//
// natss is TLS. tls_ca, tls_cert and tls_key name PEM files: the certificate authorities of the servers (default: those of the system), a client
// certificate and its key. tls_server_name is the name that the certificates of all servers must have, instead of their hosts. creds names a
// file of credentials (a JWT and its seed), and password-file one with the password. Both are read again for each connection. Open does not wait
// for a connection, and connects again whenever it is lost.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != scheme && u.Scheme != schemeTLS {
		return nil, errURL
	}
	var from []Option
	if stream := strings.TrimPrefix(u.Path, "/"); stream != "" {
		from = append(from, WithStream(stream))
	}
	connect := []nats.Option{nats.Name("wllock"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait), nats.ReconnectBufSize(-1), nats.Timeout(exchangeTime), nats.ErrorHandler(quiet), nats.PingInterval(exchangeTime), nats.MaxPingsOutstanding(2)}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	if text := q.Get("replicas"); q.Has("replicas") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("natslock: replicas=%q: want 1 to 5", text)
		}
		from = append(from, WithReplicas(n))
	}
	if file := q.Get("creds"); file != "" {
		connect = append(connect, nats.UserCredentials(file))
	}
	q.Del("replicas")
	q.Del("creds")
	u.RawQuery = q.Encode()
	files, passwordFile, err := openurl.Access(u, schemeTLS)
	if err != nil {
		return nil, fmt.Errorf("natslock: %w", err)
	}
	if u.Scheme == schemeTLS {
		connect = append(connect, secure(files)...)
	}
	if user := u.User.Username(); user != "" {
		password, _ := u.User.Password()
		connect = append(connect, nats.UserInfoHandler(func() (string, string) {
			if passwordFile != "" {
				password, _ = passfile.Read(passwordFile) // one that cannot be read is refused by the server
			}
			return user, password
		}))
	}
	conn, err := nats.Connect(strings.Join(openurl.WithPorts(u.Host, defaultPort), ","), connect...)
	if err != nil {
		return nil, distributed.Unavailable("natslock", err, distributed.ErrUnreached)
	}
	b, err := New(conn, append(from, opts...)...)
	if err != nil {
		conn.Close()
		return nil, err
	}
	b.store.own = true
	return b, nil
}

// secure has files read for each connection.
func secure(files tlsfile.Files) []nats.Option {
	first, _ := files.Config("") // which was tried
	options := []nats.Option{nats.Secure(first)}
	certificate := func() (c tls.Certificate, err error) {
		now, err := files.Config("")
		if err == nil {
			c = now.Certificates[0]
		}
		return c, err
	}
	authorities := func() (*x509.CertPool, error) {
		now, err := files.Config("")
		if err != nil {
			return nil, err
		}
		return now.RootCAs, nil
	}
	if files.Cert == "" {
		certificate = nil
	}
	if files.CA == "" {
		authorities = nil
	}
	if certificate != nil || authorities != nil {
		options = append(options, nats.ClientTLSConfig(certificate, authorities))
	}
	return options
}

// Opener returns Open with these options, for config.WithOpener, for the schemes nats and natss.
func Opener(opts ...Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}
