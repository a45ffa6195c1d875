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
	name      string // begins errors
	store     Store
	deleter   Deleter // nil: it is none, as of those below
	watcher   Watcher
	numberer  Numberer
	forgetful bool                  // see Forgetful
	client    *driver.Backend[wire] // what becomes of requests: see package driver
	ctx       context.Context       // ends with Close
	cancel    context.CancelFunc

	mu      sync.Mutex           // guards all below
	servers map[string]*server   // by the names that a Spread has for them
	written map[string]Document  // by its key, what this process wrote last
	seen    map[string]sightings // by its key, of callers that do not wait
	vigils  map[string]vigil     // by their keys, over the sessions of others

	newID func() string                          // of a claim; random tests draw it, as below, from their seed
	below func(most time.Duration) time.Duration // a random one
}

// server is what the requests for the keys of one server share. A server that is silent holds up no other (rule C7).
type server struct {
	name     string
	lane     *driver.Lane[wire]
	sessions map[time.Duration]*session // that leases have; guarded by Backend.mu
	expired  chan struct{}              // holds one for each lease that has expired and is being removed, most at a time
}

// Option changes what New does.
type Option func(*Backend)

// Forgetful is for a Store that may forget a document before its time, as a cache does. Leases have no fences then.
func Forgetful() Option { return func(b *Backend) { b.forgetful = true } }

// New returns a Backend over a Store, which stays the caller's. name begins errors: "memcachelock". It asks nothing yet.
func New(name string, store Store, opts ...Option) *Backend {
	b := &Backend{
		name: name, store: store, servers: map[string]*server{}, written: map[string]Document{}, seen: map[string]sightings{}, vigils: map[string]vigil{},
		newID: rand.Text, below: mathrand.N[time.Duration],
	}
	b.deleter, _ = store.(Deleter)
	b.watcher, _ = store.(Watcher)
	b.numberer, _ = store.(Numberer)
	for _, o := range opts {
		o(b)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.client = driver.New(half{b}, driver.Settings{
		Name: name, LookMost: 1, DropMost: 1, Drops: most, Counts: true, Pause: b.pauseAfter,
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
		s = &server{name: name, sessions: map[time.Duration]*session{}, lane: b.client.NewLane(b.ctx, nil), expired: make(chan struct{}, most)}
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

// Ping implements distributed.Backend: it asks a Pinger, or locks and releases a random key.
func (b *Backend) Ping(ctx context.Context) error {
	p, ok := b.store.(Pinger)
	if !ok {
		return b.PingKey(ctx, rand.Text())
	}
	answer := make(chan error, 1)
	if !b.client.Go(func() { answer <- p.Ping(ctx) }) {
		return distributed.ErrClosed
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return distributed.Unavailable(b.name, ctx.Err())
	}
}

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

// reading is what is known of a document.
type reading struct {
	Document
	guessed bool // it may have changed since: only a Put tells
}

// guess is what a document may be: as this process wrote it last, or absent. If it is, a step takes one exchange.
func (b *Backend) guess(key string) *reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &reading{b.written[key], true}
}

// mostRemembered documents are remembered for a guess.
const mostRemembered = 1024

// wrote notes what the document of a key is now. One without a version is not known.
func (b *Backend) wrote(key string, d Document) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.written, key)
	if d.Version == "" {
		return
	}
	for other := range b.written {
		if len(b.written) < mostRemembered {
			break
		}
		delete(b.written, other) // any: a guess that is wrong costs an exchange
	}
	b.written[key] = d
}

// change applies step to the lock of a key, which was read by a request sent at the given time. If step reports that it has changed it, it
// is written. step is called again with what another has written meanwhile: only the lock counts of what it did before, and it may read and end
// sessions. known is what was read before; nil: nothing. change returns the lock as it is then.
//
// Only a Put from the version that was read writes, so no two steps cross, and one that arrives late does nothing: who gives up a claim
// after a request that was not answered changes the document (see remove). A Put that arrives late, when the document is absent, brings a
// grant that nobody has: its process removes it within a claim window (see sweep), and otherwise it ends as that of a process that has died.
func (b *Backend) change(ctx context.Context, key string, known *reading, step func(l *lock, sent time.Time) bool) (lock, error) {
	begin := time.Now()
	for tries := 1; ; tries++ {
		start := time.Now()
		l, err := b.try(ctx, key, known, step)
		crowd := time.Duration(max(tries-atOnce, 0)) * max(crowdPause, time.Since(start)/crowdShare)
		switch {
		case !errors.Is(err, ErrConflict):
			return l, err
		case ctx.Err() != nil, b.ctx.Err() != nil, !pause(ctx, b.jittered(min(crowd, longestPause))):
			return l, b.crowded(tries, begin, cmp.Or(ctx.Err(), b.ctx.Err()))
		}
		known = nil // somebody was faster
	}
}

func (b *Backend) try(ctx context.Context, key string, known *reading, step func(l *lock, sent time.Time) bool) (l lock, err error) {
	sent := time.Now()
	if known == nil {
		known = new(reading)
		known.Document, err = b.store.Get(ctx, key)
		if err = b.exchanged(sent, err); err != nil {
			return l, err
		}
	}
	if l, err = b.decode(known.Document); err != nil {
		return l, err
	}
	before := len(l.Owners) + len(l.Queue)
	changed := step(&l, sent)
	goes := len(l.Owners) == 0 && l.least == 0 && l.breaking() == nil // nobody has the lock, and it can be forgotten
	switch nothing := !changed || goes && known.Version == ""; {
	case nothing && known.guessed:
		return b.try(ctx, key, nil, step)
	case nothing:
		return l, nil
	case goes && b.deleter != nil:
		b.wrote(key, Document{})
		sent := time.Now()
		return l, b.exchanged(sent, b.deleter.Delete(ctx, key, known.Version))
	}
	d := Document{Data: l.encode()}
	if after := len(l.Owners) + len(l.Queue); after > before && len(d.Data) > maxDocument {
		return l, distributed.Unavailable(b.name, keyless.Errorf("%d instances have the lock or wait for it: want a document of at most %d bytes",
			before, maxDocument), distributed.ErrRefused)
	}
	put := time.Now()
	d.Version, err = b.store.Put(ctx, key, d.Data, known.Version, l.keep())
	if err = b.exchanged(put, err); err != nil {
		d.Version = ""
	}
	b.wrote(key, d)
	if err == nil && l.absent {
		err = b.number(&l, d.Version)
	}
	return l, err
}

// exchanged tells the observers of an exchange, and returns its error. A conflict is an answer.
func (b *Backend) exchanged(sent time.Time, err error) error {
	if errors.Is(err, ErrConflict) {
		b.client.Exchanged(sent, nil)
	} else {
		b.client.Exchanged(sent, err)
	}
	return err
}

// Observe implements distributed.Observable.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.client.Observe(f) }

// Echo implements distributed.Observable. It reads a document that is not there.
func (b *Backend) Echo(ctx context.Context) error {
	sent := time.Now()
	_, err := b.store.Get(ctx, rand.Text())
	return b.exchanged(sent, err)
}

// maxDocument is the size of the largest document: some services allow no larger one.
const maxDocument = 64 << 10

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
