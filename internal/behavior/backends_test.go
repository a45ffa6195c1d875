package behavior

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

// panics is a backend that panics the first few times.
type panics struct {
	distributed.Backend
	times atomic.Int32
}

func (p *panics) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if p.times.Add(-1) >= 0 {
		panic("backend")
	}
	return p.Backend.Enter(ctx, req)
}

// faulty is a backend that panics for one key.
type faulty struct {
	*memlock.Backend
	key string
}

func (f faulty) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if r.Key == f.key {
		panic("backend")
	}
	return f.Backend.Enter(ctx, r)
}

// slow is a backend that answers late.
type slow struct {
	distributed.Backend
	key            string // for which Enter is late, and does not notice that its caller has left
	enter, release time.Duration
}

func (s slow) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if r.Key == s.key {
		time.Sleep(s.enter)
		ctx = context.WithoutCancel(ctx)
	}
	l, p, err := s.Backend.Enter(ctx, r)
	if l != nil && s.release > 0 {
		l = slowLease{l, s.release}
	}
	return l, p, err
}

type slowLease struct {
	distributed.Lease
	release time.Duration
}

func (l slowLease) Release(ctx context.Context) error {
	time.Sleep(l.release)
	return l.Lease.Release(ctx)
}

// heedful is a backend whose Enter of b lasts until its caller leaves.
type heedful struct{ distributed.Backend }

func (h heedful) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if r.Key == "test:n:b" {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return h.Backend.Enter(ctx, r)
}

// deaf is a backend that does not tell a holder that its lease is lost, until that is released.
type deaf struct{ *memlock.Backend }

func (d deaf) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := d.Backend.Enter(ctx, r)
	if l != nil {
		l = deafLease{l}
	}
	return l, p, err
}

type deafLease struct{ distributed.Lease }

func (deafLease) Lost() <-chan struct{}       { return nil }
func (deafLease) Healthy() bool               { return true }
func (l deafLease) Unwrap() distributed.Lease { return l.Lease }

// counting counts inspections, and lets them wait.
type counting struct {
	*memlock.Backend
	inspections atomic.Int64
	wait        chan struct{}
}

func (c *counting) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	c.inspections.Add(1)
	select {
	case <-c.wait:
		return c.Backend.Inspect(ctx, key)
	case <-ctx.Done():
		return distributed.Inspection{}, ctx.Err()
	}
}

// asking is a backend that counts what it is asked.
type asking struct {
	distributed.Backend
	enters atomic.Int32
}

func (b *asking) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	b.enters.Add(1)
	return b.Backend.Enter(ctx, req)
}

// reticent is a backend that tells no holder that somebody was refused, as most do not.
type reticent struct{ asking }

type reticentLease struct{ distributed.AsyncLease }

func (l reticentLease) Unwrap() distributed.Lease { return l.AsyncLease }
func (reticentLease) Wanted() bool                { return false }

func (b *reticent) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	lease, place, err := b.asking.Enter(ctx, req)
	if errors.Is(err, distributed.ErrHeld) {
		return nil, nil, distributed.ErrHeld
	}
	if lease != nil {
		lease = reticentLease{lease.(distributed.AsyncLease)}
	}
	return lease, place, err
}

type failing struct {
	distributed.Backend
	err error
}

func (f failing) Enter(context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
	return nil, nil, f.err
}

// stuck is a backend that is silent, and closes after a while.
type stuck struct{ distributed.Backend }

func (stuck) Ping(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

func (s stuck) Close() error {
	time.Sleep(4 * time.Second)
	return s.Backend.Close()
}

// refusesReleases is a backend that says no to every release, but does it. Such a release has a log line of its own, and one
// that the backend does not answer may share the line of an outage.
type refusesReleases struct{ *memlock.Backend }

type unreleasable struct{ distributed.Lease }

func (b refusesReleases) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	if l != nil {
		l = unreleasable{l}
	}
	return l, p, err
}

func (l unreleasable) Unwrap() distributed.Lease { return l.Lease }

func (l unreleasable) Release(ctx context.Context) error {
	return errors.Join(distributed.ErrUnavailable, distributed.ErrRefused, l.Lease.Release(ctx))
}

// heldElsewhere is a backend that is asked through a decorator, which says of which key.
type heldElsewhere struct{ *memlock.Backend }

func (heldElsewhere) Enter(_ context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return nil, nil, fmt.Errorf("%s: %w", req.Key, distributed.Held("web-1"))
}

// unreleased is a backend that does not confirm releases, and says of which key.
type unreleased struct{ *memlock.Backend }

type unreleasedLease struct {
	distributed.Lease
	key string
}

func (l unreleasedLease) Unwrap() distributed.Lease { return l.Lease }

func (l unreleasedLease) Release(ctx context.Context) error {
	_ = l.Lease.Release(ctx)
	return fmt.Errorf("%w: %q", distributed.ErrUnavailable, l.key)
}

func (b unreleased) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	lease, place, err := b.Backend.Enter(ctx, req)
	return unreleasedLease{lease, req.Key}, place, err
}

// frail is a backend whose next grants are lost as soon as somebody looks at them.
type frail struct {
	distributed.Backend
	lose atomic.Int32 // so many
}

func (f *frail) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := f.Backend.Enter(ctx, req)
	if p != nil {
		p = wrap.Place(p, f.wrap)
	}
	return l, p, err
}

func (f *frail) wrap(l distributed.Lease) distributed.Lease {
	return &frailLease{l.(distributed.AsyncLease), f}
}

type frailLease struct {
	distributed.AsyncLease
	of *frail
}

func (l *frailLease) Unwrap() distributed.Lease { return l.AsyncLease }

func (l *frailLease) Watch(w distributed.Watcher, as distributed.Lease) {
	if l.of.lose.Add(-1) >= 0 {
		_ = l.Release(context.Background())
		w.LeaseLost(as)
		return
	}
	l.AsyncLease.Watch(w, as)
}

// detour is a backend that delays Enters, or takes places away, while it is told to.
type detour struct {
	distributed.Backend
	gate atomic.Pointer[chan struct{}] // nil: open
	lost atomic.Pointer[chan struct{}] // the next place is lost when it is closed
}

func (b *detour) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if gate := b.gate.Load(); gate != nil {
		<-*gate
	}
	l, p, err := b.Backend.Enter(ctx, req)
	if lost := b.lost.Swap(nil); p != nil && lost != nil {
		p = &lostPlace{p, make(chan distributed.Lease), *lost}
		go p.(*lostPlace).watch()
	}
	return l, p, err
}

type lostPlace struct {
	distributed.Place
	granted chan distributed.Lease
	lost    chan struct{}
}

func (p *lostPlace) Granted() <-chan distributed.Lease { return p.granted }

func (p *lostPlace) watch() {
	<-p.lost
	_ = p.Leave(context.Background())
	close(p.granted)
}

// miser is a backend whose leases have no fences when it says so, until they are refilled, which may take a while.
type miser struct {
	distributed.Backend

	mu    sync.Mutex
	empty bool
	gate  chan struct{} // nil: a refill takes no time
}

func (m *miser) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := m.Backend.Enter(ctx, req)
	switch {
	case l != nil:
		return m.wrap(l), nil, err
	case p != nil:
		return nil, wrap.Place(p, m.wrap), err
	}
	return nil, nil, err
}

func (m *miser) wrap(l distributed.Lease) distributed.Lease { return &miserLease{l, m} }

// runsOut leaves all leases without fences; a refill waits for the gate, if there is one.
func (m *miser) runsOut(gate chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.empty, m.gate = true, gate
}

type miserLease struct {
	distributed.Lease
	m *miser
}

func (l *miserLease) Unwrap() distributed.Lease { return l.Lease }

func (l *miserLease) NextFence() (uint64, bool) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.empty {
		return 0, false
	}
	return l.Lease.NextFence()
}

func (l *miserLease) Refill(ctx context.Context) error {
	l.m.mu.Lock()
	gate := l.m.gate
	l.m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.empty = false
	return l.Lease.Refill(ctx)
}

// tardy is a backend whose answers to releases take a moment, as over a network.
type tardy struct{ *memlock.Backend }

const tardyBy = 20 * time.Millisecond

func (b tardy) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if l, ok := distributed.As[tardyLease](r.Prev); ok {
		r.Prev = l.Lease
	}
	l, p, err := b.Backend.Enter(ctx, r)
	if l != nil {
		return tardyLease{l}, nil, err
	}
	return nil, p, err
}

// tardyLease has what the contract requires and no more.
type tardyLease struct{ distributed.Lease }

func (l tardyLease) Release(ctx context.Context) error {
	time.Sleep(tardyBy)
	return l.Lease.Release(ctx)
}

// mortal is a backend as a process sees it that can die: then nothing it holds is renewed or released.
type mortal struct {
	distributed.Backend
	mu     sync.Mutex
	dead   bool
	leases []*mortalLease
}

func (m *mortal) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if dead { // it asks for nothing any more
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	l, p, err := m.Backend.Enter(ctx, req)
	switch {
	case l != nil:
		return m.wrap(l), nil, err
	case p != nil:
		return nil, wrap.Place(p, m.wrap), err
	}
	return nil, nil, err
}

func (m *mortal) wrap(l distributed.Lease) distributed.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead { // a late grant
		l.Abandon()
	}
	m.leases = append(m.leases, &mortalLease{l, m})
	return m.leases[len(m.leases)-1]
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, l := range m.leases {
		l.Abandon()
	}
}

type mortalLease struct {
	distributed.Lease
	m *mortal
}

func (l *mortalLease) Unwrap() distributed.Lease { return l.Lease }
func (l *mortalLease) Release(ctx context.Context) error {
	l.m.mu.Lock()
	dead := l.m.dead
	l.m.mu.Unlock()
	if dead {
		return nil
	}
	return l.Lease.Release(ctx)
}

// losing is a backend whose last lease can be ended.
type losing struct {
	distributed.Backend
	last interface{ End() bool }
}

func (b *losing) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	if l != nil {
		b.last = l.(interface{ End() bool })
	}
	return l, p, err
}

// late is a backend whose answers take long, but renewals do not.
type late struct {
	*memlock.Backend
	by time.Duration
}

func (b *late) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	time.Sleep(b.by)
	return l, p, err
}

// brief is a backend that grants no longer leases than that.
type brief struct {
	*memlock.Backend
	longest time.Duration
}

func (b *brief) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	req.TTL = min(req.TTL, b.longest)
	return b.Backend.Enter(ctx, req)
}

// impermissive is a backend without permits.
type impermissive struct{ *memlock.Backend }

func (b *impermissive) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := r.Unlimited(); err != nil {
		return nil, nil, fmt.Errorf("test: %w", err)
	}
	return b.Backend.Enter(ctx, r)
}

// probed is a backend on which no lock of one system would work, though all is well otherwise.
type probed struct {
	distributed.Backend
	asked distributed.Probe
}

var errNoRights = errors.New("no rights")

func (p *probed) Probe(_ context.Context, asked distributed.Probe) error {
	p.asked = asked
	return errNoRights
}
