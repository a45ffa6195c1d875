package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
)

// Backend is the distributed tier on memcached. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	locks    *register.Backend // see package register
	client   *memcache.Client
	own      bool // Close closes it
	unfenced bool
}

// Option changes how a Backend works.
type Option func(*Backend)

// WithUnfenced is the consent without which New refuses: to locks without fences, on a service that may forget them. The
// package's documentation says what that means.
func WithUnfenced() Option { return func(b *Backend) { b.unfenced = true } }

// New returns a Backend over the servers of client. It needs [WithUnfenced], and does not connect. The client is the caller's: its
// Timeout bounds every exchange, and its MaxIdleConns should be as many as the callers that ask at a time. With several servers
// set Timeout to T/20 at most: a silent server can hold up the renewals at the others for as long, a few times.
func New(client *memcache.Client, opts ...Option) (*Backend, error) {
	b := &Backend{client: client}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("memcachelock: an option is nil")
		}
		o(b)
	}
	switch {
	case client == nil:
		return nil, errors.New("memcachelock: the client is nil")
	case !b.unfenced:
		return nil, errors.New("memcachelock: memcached has no fencing tokens, and may evict or forget a lock that is held: " +
			"choose another backend if two holders would do harm, or consent with WithUnfenced()")
	}
	b.locks = register.New("memcachelock", store{client})
	return b, nil
}

// maxTTL keeps an item's expiry below 30 days; beyond them memcached takes it for a date.
const maxTTL = 14 * 24 * time.Hour

// Enter implements distributed.Backend. The TTL is 14 days at most.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if req.TTL > maxTTL {
		return nil, nil, fmt.Errorf("memcachelock: a TTL of %v: want %v at most", req.TTL, maxTTL)
	}
	return b.locks.Enter(ctx, req)
}

// Ping implements distributed.Backend: every server answers, and one of them locks and releases.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.client.Ping(); err != nil {
		return sorted(err)
	}
	return b.locks.Ping(ctx)
}

// Close implements distributed.Backend. It leaves the places, and goes on for a second with a server that does not answer.
func (b *Backend) Close() error {
	_ = b.locks.Close() // nil
	if b.own {
		return b.client.Close()
	}
	return nil
}
