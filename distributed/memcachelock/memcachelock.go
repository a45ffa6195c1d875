package memcachelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// Backend is the distributed tier on memcached. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	client   *memcache.Client
	own      bool // Close closes it
	unfenced bool
	keeper   *keepalive.Keeper
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	mu     sync.Mutex // guards all below; not held during I/O
	closed bool
	places map[*place]struct{} // that wait, or whose grant lies unread
	tasks  sync.WaitGroup      // polls and releases; Add under mu, unless closed
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
	b := &Backend{client: client, places: map[*place]struct{}{}}
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
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.keeper = keepalive.NewKeeper(b.renew)
	return b, nil
}

// Enter implements distributed.Backend. ctx is looked at between two exchanges. The TTL is 14 days at most.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if b.isClosed() {
		return nil, nil, distributed.ErrClosed
	}
	if req.TTL < distributed.MinTTL || req.TTL > maxTTL || req.Instance == "" || req.Key == "" {
		return nil, nil, fmt.Errorf("memcachelock: a request needs a key, an instance and a TTL from %v to %v", distributed.MinTTL, maxTTL)
	}
	if err := req.CheckLimit(); err != nil {
		return nil, nil, fmt.Errorf("memcachelock: %w", err)
	}
	c := newClaim(req)
	prev, ok := distributed.As[*lease](req.Prev)
	if ok = ok && prev.b == b && prev.key == req.Key && prev.Instance == req.Instance; ok {
		prev.Finish() // before the exchange: from here on it is neither renewed nor reported lost
	}
	var owner, queued, wanted bool
	var holder string
	known, start := missing(req.Key), time.Now() // most likely there is no item, and else add says so
	if ok {
		known = nil
	}
	err := b.insist(ctx, distributed.ClaimWindow(req.TTL), req.Key, known, unanswered, func(s *state, _ time.Time) bool {
		removed := ok && prev.removeFrom(s)
		changed := s.take(c, req.NoWait) // nothing if an earlier try was carried out whose reply was lost
		if holder = ""; len(s.Owners) > 0 {
			holder = distributed.HolderText(s.Owners[0].Instance, len(s.Owners)-1)
		}
		owner, queued, wanted = index(s.Owners, c.ID) >= 0, index(s.Queue, c.ID) >= 0, s.wanted(c.Instance)
		return changed || removed
	})
	switch {
	case err != nil:
		b.task(func() { b.drop(req.Key, c) }) // perhaps it was carried out
		return nil, nil, err
	case !owner && !queued:
		return nil, nil, distributed.Held(holder)
	case owner && !b.isClosed():
		return b.keep(req.Key, c, nil, start, wanted), nil, nil
	case queued:
		if p := b.wait(req.Key, c, start); p != nil {
			return nil, p, nil
		}
	}
	return nil, nil, distributed.ErrClosed // c expires
}

// Ping implements distributed.Backend: every server answers, and one of them locks and releases.
func (b *Backend) Ping(ctx context.Context) error {
	if b.isClosed() {
		return distributed.ErrClosed
	}
	if err := b.client.Ping(); err != nil {
		return sorted(err)
	}
	c := claim{ID: rand.Text(), TTL: distributed.MinTTL}
	err := b.change(ctx, c.ID, missing(c.ID), func(s *state, _ time.Time) bool { return s.take(c, true) })
	if err == nil {
		err = b.change(ctx, c.ID, nil, func(s *state, _ time.Time) bool { return s.remove(c.ID) })
	}
	return err
}

// Close implements distributed.Backend. It leaves the places, and goes on for closeGrace with a server that does not answer.
func (b *Backend) Close() error {
	b.mu.Lock()
	first, places := !b.closed, b.places
	b.closed, b.places = true, nil
	b.mu.Unlock()
	if !first {
		return nil
	}
	defer time.AfterFunc(closeGrace, b.cancel).Stop()
	var leaving sync.WaitGroup
	for p := range places {
		close(p.granted)
		leaving.Go(func() { _ = p.leave() })
	}
	leaving.Wait()
	b.tasks.Wait()
	b.cancel()
	b.keeper.Close()
	if b.own {
		return b.client.Close()
	}
	return nil
}

// closeGrace is short, since a place that is not left costs the others a claim window only, and a lease T.
const closeGrace = time.Second

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// task runs fn on a goroutine that Close waits for, and reports false when the Backend is closed.
func (b *Backend) task(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(fn)
	}
	return !b.closed
}
