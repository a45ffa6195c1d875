package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is a grant in use. keepalive.Lease keeps it alive; what is here is its fences, and its release:
//
//	kept ── Release, StartRelease ──▶ starting ── sent ──▶ releasing ── answer ──▶ released
//	kept, starting ── Prev of an Enter ──▶ adopted: the Enter releases it ──▶ released
//	                                       └─ the Enter has failed ──▶ releasing
type lease struct {
	keepalive.Lease
	a       *attempt
	seat    bool // it is a row of the waiters; else it is the lock's owner
	fences  fences
	granted time.Time

	mu      sync.Mutex // guards all below
	phase   phase
	held    bool // when its release began
	watched bool // the answer goes to the Watcher
	err     error
	done    chan struct{} // closed once released
	look    time.Duration // between the latest two looks
}

type phase uint8

const (
	kept phase = iota
	starting
	adopted
	releasing
	released
)

// newLease makes the lease of a grant. It lasts for the claim window from when the statement was sent that took it. The
// caller holds a.mu.
func newLease(a *attempt, g answer) *lease {
	l := &lease{a: a, seat: g.seat, done: make(chan struct{}), granted: g.sent, look: firstHolderLook}
	if a.mode == distributed.Shared && a.limit == 0 {
		l.fences.share(g.last)
	} else {
		l.fences.open(g.last, g.count)
	}
	window := distributed.ClaimWindow(a.ttl)
	a.b.keeper.Keep(&l.Lease, l, a.ttl, distributed.Validity(g.sent, window), g.sent.Add(window/3))
	l.SetContended(g.contended)
	l.Lease.Watch(loss{l}, l)
	a.plan(l.look)
	return l
}

// loss is the Watcher of a lease until its user has one: see Watch.
type loss struct{ l *lease }

func (e loss) LeaseLost(distributed.Lease)            { e.l.gone() }
func (e loss) LeaseContended(distributed.Lease)       {}
func (e loss) LeaseReleased(distributed.Lease, error) {}

// gone forgets the attempt of a lease that was lost, and has the lock looked at by others here.
func (l *lease) gone() {
	l.a.b.forget(l.a)
	l.a.b.poke(l.a.name, l.a)
}

// hook passes everything on to the user's Watcher.
type hook struct {
	loss
	user distributed.Watcher
}

// Watch implements distributed.AsyncLease.
func (l *lease) Watch(w distributed.Watcher, as distributed.Lease) {
	l.Lease.Watch(hook{loss{l}, w}, as)
}

// LeaseLost implements distributed.Watcher.
func (h hook) LeaseLost(as distributed.Lease) {
	h.l.gone()
	h.user.LeaseLost(as)
}

// LeaseContended implements distributed.Watcher.
func (h hook) LeaseContended(as distributed.Lease) { h.user.LeaseContended(as) }

// LeaseReleased implements distributed.Watcher.
func (h hook) LeaseReleased(as distributed.Lease, err error) { h.user.LeaseReleased(as, err) }

// LeaseRenewed implements distributed.RenewalWatcher.
func (h hook) LeaseRenewed(as distributed.Lease, sent time.Time, err error) {
	if w, ok := h.user.(distributed.RenewalWatcher); ok {
		w.LeaseRenewed(as, sent, err)
	}
}

// ending reports that its release has begun, or that it has expired.
func (l *lease) ending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase != kept || distributed.Over(time.Now(), l.Until())
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.draw()
	if low {
		if !l.a.b.begin() {
			l.fences.failed()
			return fence, ok
		}
		go func() {
			defer l.a.b.tasks.Done()
			ctx, cancel := context.WithTimeout(l.a.b.ctx, l.a.patience())
			defer cancel()
			_ = l.Refill(ctx) // its user asks again when it runs out
		}()
	}
	return fence, ok
}

// Refill implements distributed.Lease. Only who holds the lock gets more: a successor may have drawn fences already.
func (l *lease) Refill(ctx context.Context) error {
	if l.fences.isShared() {
		return nil
	}
	a, err := l.change(ctx, "refill", func(s *state) answer { return s.refill(l.a.token) })
	if err != nil {
		l.fences.failed()
		return err
	}
	l.fences.open(a.last, a.count)
	return nil
}

// Downgrade implements distributed.Downgrader: the owner becomes a reader, and the readers at the head of the queue find so.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.a.mode == distributed.Shared || l.fences.isShared() {
		return nil
	}
	a, err := l.change(ctx, "downgrade", func(s *state) answer { return s.downgrade(l.a.token) })
	if err != nil {
		return err
	}
	l.fences.share(a.last)
	l.a.b.poke(l.a.name, l.a)
	return nil
}

// change changes the lock as its owner, within a bounded time.
func (l *lease) change(ctx context.Context, what string, decide func(*state) answer) (a answer, err error) {
	b := l.a.b
	if b.isClosed() {
		return a, distributed.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, l.a.patience())
	defer cancel()
	start := time.Now()
	err = b.change(ctx, l.a.name, func(s *state) { a = decide(s) })
	b.observe(start, err)
	if errors.Is(err, errNoRow) || err == nil && a.outcome == vanished {
		l.End()
		return a, distributed.ErrLeaseLost
	}
	return a, b.orClosed(explain(what, err))
}
