package redislock

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/conn"
)

// New returns a Backend on the server, sentinel group or cluster that client is connected to. It copies the client's settings for connections of
// its own, and does not use the client itself. Exception: the Backend asks for the primary through a sentinel client, so keep that open as long
// as the Backend. New does not connect: Ping or the first Enter does.
func New(client redis.UniversalClient, opts ...Option) (*Backend, error) {
	return newFrom(client, conn.New, opts)
}

// Open returns a Backend on the server that a URL names:
//
//	redis://[user[:password]@]host[:port][/db]                one server
//	rediss://...                                              the same over TLS
//	unix://[user[:password]@]/path/to/socket[?db=n]           the same over a unix socket; also redis+unix://
//	redis+sentinel://[user[:password]@]host[:port][,host...]/primary[/db]   the primary the sentinels name
//	redis+cluster://[user[:password]@]host[:port][,host...]   a cluster, found from any of its nodes
//
// rediss+sentinel and rediss+cluster are the same over TLS. Then tls_ca, tls_cert and tls_key name PEM files: the certificate authorities
// of the servers, sentinels included (default: those of the system), a client certificate and its key. They are read again for each
// connection, so they can be replaced while the program runs. tls_server_name is the name that the certificates of all servers must have,
// instead of their hosts.
//
// The other query parameters are those of redis.ParseURL, of redis.ParseFailoverURL, where sentinel_username and sentinel_password are for
// the sentinels, and of redis.ParseClusterURL. Parameters that lead to replicas are refused. max_active_conns counts as at least three.
// Better keep a password in a file, see WithPasswordFile. No error of this package shows a password. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	return newFrom(rawURL, conn.Open, opts)
}

func newFrom[S any](source S, dial func(S, conn.Config) (conn.Transport, string, error), opts []Option) (*Backend, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	tr, name, err := dial(source, s.conn)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return newBackend(tr, name, s), nil
}
