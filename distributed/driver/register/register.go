package register

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is a distributed.Backend over a Store. It is safe for concurrent use.
type Backend struct {
	name   string // begins errors
	store  Store
	client *driver.Backend[wire] // what becomes of requests: see package driver
	ctx    context.Context       // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	servers map[string]*server // guarded by mu; by the names that a Spread has for them

	newID func() string                          // of a claim; random tests draw it, as below, from their seed
	below func(most time.Duration) time.Duration // a random one
}

// server is what the requests for the keys of one server share. A server that is silent holds up no other (rule C7).
type server struct {
	lane    *driver.Lane[wire]
	expired chan struct{} // holds one for each lease that has expired and is being removed, most at a time
}

// New returns a Backend over a Store, which stays the caller's. name begins errors: "memcachelock". It asks nothing yet.
func New(name string, store Store) *Backend {
	b := &Backend{name: name, store: store, servers: map[string]*server{}, newID: rand.Text, below: mathrand.N[time.Duration]}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.client = driver.New(half{b}, driver.Settings{
		Name: name, LookMost: 1, DropMost: 1, Drops: most, Pause: b.pauseAfter,
		Apart: func(enter func()) bool { return b.client.Go(enter) }, // no caller waits for a Store that is silent
	})
	return b
}

// serverOf returns the one that has a key.
func (b *Backend) serverOf(key string) *server {
	var name string
	if s, ok := b.store.(Spread); ok {
		name = s.Server(key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[name]
	if s == nil {
		s = &server{lane: b.client.NewLane(b.ctx, nil), expired: make(chan struct{}, most)}
		b.servers[name] = s
	}
	return s
}

// most is how many claims a process removes from one server at a time.
const most = 64

// Enter implements distributed.Backend. When ctx ends, what was sent goes on in the background.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.client.Enter(ctx, req)
}

// Ping implements distributed.Backend: it locks and releases a random key.
func (b *Backend) Ping(ctx context.Context) error { return b.PingKey(ctx, rand.Text()) }

// PingKey locks and releases a key, at the server that has it. No answer is too slow for the TTL.
func (b *Backend) PingKey(ctx context.Context, key string) error {
	l, _, err := b.Enter(ctx, distributed.Request{Key: key, Instance: "ping", TTL: time.Minute, NoWait: true})
	if err == nil {
		err = l.Release(ctx)
	}
	return err
}

// Close implements distributed.Backend. It goes on for a second with a Store that does not answer.
func (b *Backend) Close() error { return b.client.Close() }

// change applies step to the lock of a key, which was read by a request sent at the given time. If step reports that it has changed it, it
// is written. step is called again with what another has written meanwhile. known is what was read before; nil: nothing.
//
// Only a Put from the version that was read writes, so no two steps cross, and one that arrives late does nothing: who gives up a claim
// after a request that was not answered changes the document (see remove). A Put that arrives late, when the document is absent, brings a
// grant that nobody has: its process removes it within a claim window (see sweep), and otherwise it ends as that of a process that has died.
func (b *Backend) change(ctx context.Context, key string, known *Document, step func(l *lock, sent time.Time) bool) error {
	begin := time.Now()
	for tries := 1; ; tries++ {
		start := time.Now()
		err := b.try(ctx, key, known, step)
		crowd := time.Duration(max(tries-atOnce, 0)) * max(crowdPause, time.Since(start)/crowdShare)
		switch {
		case !errors.Is(err, ErrConflict):
			return err
		case ctx.Err() != nil, b.ctx.Err() != nil, !pause(ctx, b.jittered(min(crowd, longestPause))):
			return b.crowded(tries, begin, cmp.Or(ctx.Err(), b.ctx.Err()))
		}
		known = nil // somebody was faster
	}
}

func (b *Backend) try(ctx context.Context, key string, known *Document, step func(l *lock, sent time.Time) bool) error {
	sent := time.Now()
	if known == nil {
		d, err := b.store.Get(ctx, key)
		if err != nil {
			return err
		}
		known = &d
	}
	l, err := decode(b.name, *known)
	switch {
	case err != nil:
		return err
	case !step(&l, sent):
		return nil
	case len(l.Owners) > 0:
		return b.store.Put(ctx, key, l.encode(), known.Version, l.keep())
	case known.Version == 0:
		return nil
	}
	return b.store.Delete(ctx, key, known.Version) // nobody has the lock
}

// crowded says that others were faster each of so many times.
func (b *Backend) crowded(times int, since time.Time, also ...error) error {
	why := keyless.Errorf("others changed the lock first, %d times in %v", times, time.Since(since).Round(time.Millisecond))
	return distributed.Unavailable(b.name, why, append(also, ErrConflict)...)
}

// unanswered reports that the request may have been carried out. One that was crossed when its time ended was not.
func unanswered(err error) bool {
	return err != nil && !errors.Is(err, distributed.ErrUnreached) && !errors.Is(err, distributed.ErrRefused) && !errors.Is(err, ErrConflict)
}

const (
	// atOnce is how many conflicts are followed by another try at once. Those after it leave others room: a share of what a try takes, and
	// as much more with each.
	atOnce, crowdPause, crowdShare = 3, time.Millisecond, 16
	// firstPause gets rid of a dead connection, at which a try fails at once.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond
)

// pauseAfter is how long to wait after so many tries.
func (b *Backend) pauseAfter(tries int) time.Duration {
	return b.jittered(min(firstPause<<min(tries-1, 10), longestPause))
}

// jittered is d, give or take a quarter, so that processes that began together do not ask together.
func (b *Backend) jittered(d time.Duration) time.Duration { return d*3/4 + b.below(d/2+1) }

// pause waits for d. It reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
