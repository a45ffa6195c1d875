package redislock

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/conn"
)

// New returns a Backend on the server, sentinel group or cluster that client is connected to. It takes the client's
// settings for connections of its own and leaves the client alone. Keep a sentinel client open as long as the Backend,
// which asks for the primary through it. New does not connect: Ping or the first Enter does.
func New(client redis.UniversalClient, opts ...Option) (*Backend, error) {
	return newFrom(client, conn.New, opts)
}

// Open returns a Backend on the server a URL names:
//
//	redis://[user[:password]@]host[:port][/db]                one server
//	rediss://...                                              the same over TLS
//	unix://[user[:password]@]/path/to/socket[?db=n]           the same over a unix socket; also redis+unix://
//	redis+sentinel://[user[:password]@]host[:port][,host...]/primary[/db]   the primary the sentinels name
//	redis+cluster://[user[:password]@]host[:port][,host...]   a cluster, found from any of its nodes
//
// rediss+sentinel and rediss+cluster are the same over TLS. Then tls_ca, tls_cert and tls_key name PEM files: the authorities that vouch for
// the servers, sentinels included (default: those of the system), a client certificate and its key. They are read again for each connection,
// so they can be replaced while the program runs. tls_server_name is what the certificates of all servers must name in place of their
// hosts. The other query parameters are those of redis.ParseURL, of
// redis.ParseFailoverURL, where sentinel_username and sentinel_password are the sentinels' own, and of redis.ParseClusterURL. Those
// that lead to replicas are refused. max_active_conns counts as three at least. A password is better kept in a file, see
// WithPasswordFile. No error of this package shows one. Like New, Open does not connect.
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
