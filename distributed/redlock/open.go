package redlock

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
	"github.com/wllock/wllock/internal/tlsfile"
)

// quorumFences is the parameter of a URL that stands for WithQuorumFences.
const quorumFences = "fences=quorum"

const (
	fewest = 3
	most   = 31 // far beyond sense, and what fits into sets of bits
)

// New returns a Backend on the servers that the clients are connected to: an odd number of at least 3, each a *redis.Client of one server that
// is not a replica. 5 is a good number. New copies the clients' settings for connections of its own, and does not use the clients themselves. It
// does not connect: Ping or the first Enter does. A server that is named twice is refused: by New if the addresses are equal, otherwise as soon
// as both have been reached.
func New(clients []redis.UniversalClient, opts ...Option) (*Backend, error) {
	all := make([]*redis.Options, len(clients))
	for i, c := range clients {
		one, ok := c.(*redis.Client)
		if !ok || one == nil {
			return nil, fmt.Errorf("redlock: client %d is a %T: want a *redis.Client of one server", i+1, c)
		}
		o := *one.Options()
		if o.Addr == "FailoverClient" {
			return nil, fmt.Errorf("redlock: client %d follows sentinels: want one of a single server, because a failover loses votes", i+1)
		}
		all[i] = &o
	}
	return open(all, opts)
}

// Open returns a Backend on the servers that a URL names:
//
//	redlock://[user[:password]@]host[:port],host[:port],host[:port][,...][/db][?fences=quorum]
//
// redlocks:// is the same over TLS, with the parameters tls_ca, tls_cert, tls_key and tls_server_name of redislock.Open. fences=quorum is
// WithQuorumFences. User and password apply to all servers. Better keep a password in a file, see WithPasswordFile. No error of this
// package shows a password. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("redlock: the address %w", err)
	}
	kind, ok := redisopts.SchemeOf(u.Scheme)
	switch {
	case !ok || kind.Kind != redisopts.KindRedlock:
		return nil, fmt.Errorf("redlock: unknown scheme %q: want redlock or redlocks", u.Scheme)
	case u.Host == "":
		return nil, errors.New("redlock: the URL has no host")
	}
	files, err := redisopts.TakeTLS(u)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redlock: %w", err)
	case u.RawQuery == quorumFences:
		opts = append([]Option{WithQuorumFences()}, opts...)
	case u.RawQuery != "":
		return nil, errors.New("redlock: the URL takes one parameter: " + quorumFences + ", and over TLS " + tlsfile.Names)
	}
	all, err := redisopts.ParseRedlock(u, kind.TLS, files)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return open(all, opts)
}

func open(servers []*redis.Options, opts []Option) (*Backend, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	if n := len(servers); n < fewest || n > most || n%2 == 0 {
		return nil, fmt.Errorf("redlock: %d servers: want an odd number from %d to %d, 5 for example", n, fewest, most)
	}
	seen := map[string]bool{}
	for _, o := range servers {
		at := o.Network + " " + o.Addr
		if seen[at] {
			return nil, fmt.Errorf("redlock: the server %s is named twice: its vote would count twice", o.Addr)
		}
		seen[at] = true
	}
	return newBackend(servers, s), nil
}
