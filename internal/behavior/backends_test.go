package behavior

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

// entering is a backend with an Enter of the test's own.
type entering struct {
	distributed.Backend
	enter func(context.Context, distributed.Request) (distributed.Lease, distributed.Place, error)
}

func (b entering) Unwrap() distributed.Backend { return b.Backend }

func (b entering) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.enter(ctx, req)
}

// leasing is a backend whose leases the test changes.
type leasing struct {
	distributed.Backend
	change func(distributed.Lease) distributed.Lease
}

func (b leasing) Unwrap() distributed.Backend { return b.Backend }

func (b leasing) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	switch {
	case l != nil:
		return b.change(l), nil, err
	case p != nil:
		return nil, wrap.Place(p, b.change), err
	}
	return nil, nil, err
}

// asking is b when f sees each request before, and may change it. An error of f is the answer.
func asking(b distributed.Backend, f func(context.Context, *distributed.Request) error) distributed.Backend {
	return entering{b, func(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
		if err := f(ctx, &req); err != nil {
			return nil, nil, err
		}
		return b.Enter(ctx, req)
	}}
}

// counted counts the requests to b.
func counted(b distributed.Backend, enters *atomic.Int32) distributed.Backend {
	return asking(b, func(context.Context, *distributed.Request) error { enters.Add(1); return nil })
}

// lateFor is b when requests for one key arrive late there, even if their callers have left.
func lateFor(b distributed.Backend, key string, by time.Duration) distributed.Backend {
	return entering{b, func(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
		if req.Key == key {
			time.Sleep(by)
			ctx = context.WithoutCancel(ctx)
		}
		return b.Enter(ctx, req)
	}}
}

// tardy is b when it answers releases late.
func tardy(b distributed.Backend, by time.Duration) distributed.Backend {
	return leasing{b, func(l distributed.Lease) distributed.Lease {
		return wrap.Releasing(l, func(ctx context.Context) error {
			time.Sleep(by)
			return l.Release(ctx)
		})
	}}
}

// refusesReleases is b when it says no to every release, but does it. Such a release has a log line of its own, and one that is
// not answered may share the line of an outage.
func refusesReleases(b distributed.Backend, text string) distributed.Backend {
	return leasing{b, func(l distributed.Lease) distributed.Lease {
		return wrap.Releasing(l, func(ctx context.Context) error {
			return errors.Join(distributed.ErrUnavailable, distributed.ErrRefused, errors.New(text), l.Release(ctx))
		})
	}}
}

// deaf is b when a holder is not told that its lease is lost, until it releases that.
func deaf(b distributed.Backend) distributed.Backend {
	return leasing{b, func(l distributed.Lease) distributed.Lease { return deafLease{l} }}
}

type deafLease struct{ distributed.Lease }

func (l deafLease) Unwrap() distributed.Lease { return l.Lease }

func (l deafLease) At(now time.Time) (time.Duration, bool) {
	return distributed.Left(now, l.Until()), true
}

func (l deafLease) Watch(w distributed.Watcher, as distributed.Lease) {
	l.Lease.Watch(deafWatcher{w}, as)
}

type deafWatcher struct{ distributed.Watcher }

func (deafWatcher) LeaseLost(distributed.Lease) {}

// frail is b when so many of its next leases are lost as soon as somebody looks at them.
func frail(b distributed.Backend, lose *atomic.Int32) distributed.Backend {
	return leasing{b, func(l distributed.Lease) distributed.Lease { return frailLease{l, lose} }}
}

type frailLease struct {
	distributed.Lease
	lose *atomic.Int32
}

func (l frailLease) Unwrap() distributed.Lease { return l.Lease }

func (l frailLease) Watch(w distributed.Watcher, as distributed.Lease) {
	if l.lose.Add(-1) >= 0 {
		_ = l.Release(context.Background())
		w.LeaseLost(as)
		return
	}
	l.Lease.Watch(w, as)
}

// counting counts inspections, and answers none.
type counting struct {
	*memlock.Backend
	inspections atomic.Int64
}

func (c *counting) Inspect(ctx context.Context, _ string) (distributed.Inspection, error) {
	c.inspections.Add(1)
	<-ctx.Done()
	return distributed.Inspection{}, ctx.Err()
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
	empty atomic.Bool
	gate  chan struct{} // nil: a refill takes no time
}

func (m *miser) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return leasing{m.Backend, func(l distributed.Lease) distributed.Lease { return &miserLease{l, m} }}.Enter(ctx, req)
}

// runsOut leaves all leases without fences. A refill waits for the gate, if there is one.
func (m *miser) runsOut(gate chan struct{}) {
	m.gate = gate
	m.empty.Store(true)
}

type miserLease struct {
	distributed.Lease
	m *miser
}

func (l *miserLease) Unwrap() distributed.Lease { return l.Lease }

func (l *miserLease) NextFence() (uint64, bool) {
	if l.m.empty.Load() {
		return 0, false
	}
	return l.Lease.NextFence()
}

func (l *miserLease) Refill(ctx context.Context) error {
	if l.m.gate != nil {
		<-l.m.gate
	}
	l.m.empty.Store(false)
	return l.Lease.Refill(ctx)
}

// mortal is a backend as a process sees it that can die: then nothing it holds is renewed or released.
type mortal struct {
	distributed.Backend
	mu     sync.Mutex
	dead   bool
	leases []distributed.Lease
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if m.isDead() { // it asks for nothing any more
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return leasing{m.Backend, m.owns}.Enter(ctx, req)
}

func (m *mortal) owns(l distributed.Lease) distributed.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead { // a late grant
		l.Abandon()
	}
	m.leases = append(m.leases, l)
	return wrap.Releasing(l, func(ctx context.Context) error {
		if m.isDead() {
			return nil
		}
		return l.Release(ctx)
	})
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, l := range m.leases {
		l.Abandon()
	}
}
