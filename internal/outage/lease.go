package outage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/watch"
)

// lease is what callers work under with LocalOnly: a lease of the backend's for as long as there is one, then, or from
// the start, nothing but their turn.
//
//	leased ── runs out unrenewed while the backend is known to be away ──▶ degraded
//	   ├── runs out otherwise, or the backend disowns it ──▶ settled: lost
//	   └── given up ──▶ settled
//
// Whoever looks first after the end of the backend's lease decides, be it a clock-reader (Until, At) or the timer that
// tells of the end (LeaseLost); the decision is made under mu, once, and all later looks give the same answer. A renewal
// that is answered after it changes nothing: the backend's lease is abandoned then.
//
// A degraded lease lasts until it is given up; abandoned, T longer. It is handed on only while turns are served without a
// lease, in the one stretch it was in: in between others may have taken the lock.
type lease struct {
	of    *LocalOnly
	inner distributed.AsyncLease // nil: degraded from the start
	state atomic.Uint32          // leaseState; written under mu; goes up once
	end   atomic.Pointer[time.Time]

	stretch *stretch // of a degraded one; set before state is

	mu        sync.Mutex // guards all below; never held while calling out
	watcher   distributed.Watcher
	as        distributed.Lease // what the watcher calls p
	abandoned bool
	givenBack bool
	timer     *time.Timer // of end
	lost      chan struct{}
	gone      bool // lost is closed, or would be
}

const (
	leased uint32 = iota
	degraded
	settled
)

// Adopt implements tenure.Outage.
func (l *LocalOnly) Adopt(got distributed.Lease) distributed.AsyncLease {
	if p, ok := got.(*lease); ok {
		return p
	}
	return &lease{of: l, inner: watch.Async(got)}
}

// degraded makes a lease that is none.
func (l *LocalOnly) degraded(s *stretch) *lease {
	p := &lease{of: l, stretch: s}
	p.state.Store(degraded)
	return p
}

// Degraded reports that there is no lease of the backend's.
func (p *lease) Degraded() bool { return p.without(time.Now()) }

// without reports whether p is degraded now.
func (p *lease) without(now time.Time) bool {
	switch p.state.Load() {
	case degraded:
		return true
	case settled:
		return false
	}
	left, _ := p.inner.At(now)
	return left <= 0 && p.ranOut(now)
}

// ranOut decides what becomes of p, whose lease is over. It reports whether it is degraded.
func (p *lease) ranOut(now time.Time) bool {
	s := p.of.before(p.inner.Until(), now)
	p.mu.Lock()
	decided := p.state.Load() == leased
	if decided && s != nil && !p.abandoned {
		p.stretch = s
		p.state.Store(degraded)
	} else if decided {
		p.state.Store(settled)
	}
	is := p.state.Load() == degraded
	p.mu.Unlock()
	if decided && is {
		p.inner.Abandon()
	}
	return is
}

// At implements distributed.AsyncLease. A degraded lease has T left: nobody takes it away sooner.
func (p *lease) At(now time.Time) (left time.Duration, healthy bool) {
	if state := p.state.Load(); state != degraded {
		left, healthy = p.inner.At(now)
		if left > 0 || state == settled || !p.ranOut(now) {
			return left, healthy
		}
	}
	if end := p.end.Load(); end != nil {
		return distributed.Left(now, *end), false
	}
	return p.of.ttl, p.of.serves(p.stretch, now)
}

// Healthy implements distributed.Lease.
func (p *lease) Healthy() bool {
	_, healthy := p.At(time.Now())
	return healthy
}

// Until implements distributed.Lease. For a degraded one that is T from now, whenever it is asked.
func (p *lease) Until() time.Time {
	now := time.Now()
	if state := p.state.Load(); state != degraded {
		until := p.inner.Until()
		if state == settled || !distributed.Over(now, until) || !p.ranOut(now) {
			return until
		}
	}
	if end := p.end.Load(); end != nil {
		return *end
	}
	return now.Add(p.of.ttl)
}

// NextFence implements distributed.Lease. Without the backend there is none.
func (p *lease) NextFence() (uint64, bool) {
	if p.without(time.Now()) {
		return 0, false
	}
	return p.inner.NextFence()
}

// Refill implements distributed.Lease. A lease whose fences cannot be had because the backend is away is of no further
// use: ErrLeaseLost makes the tenure give it up and enter again, which is where waiting for the backend is done.
func (p *lease) Refill(ctx context.Context) error {
	if p.without(time.Now()) {
		return errors.ErrUnsupported
	}
	sent := time.Now()
	short, cancel := context.WithTimeout(ctx, p.of.patience)
	defer cancel()
	err := p.of.tooLong(ctx, short, p.inner.Refill(short))
	if judge(ctx, err) == errAway {
		p.of.failed(sent)
		return distributed.ErrLeaseLost
	}
	return err
}

// Contended implements distributed.Lease. Of others who wait nothing is known without the backend.
func (p *lease) Contended() bool { return p.state.Load() != degraded && p.inner.Contended() }

// Abandon implements distributed.Lease. A lease that is not to be renewed is not to be degraded either: of the race with
// ranOut there is one winner, under mu.
func (p *lease) Abandon() {
	p.mu.Lock()
	first := !p.abandoned
	p.abandoned = true
	if first && p.state.Load() == degraded && !p.givenBack {
		end := time.Now().Add(p.of.ttl)
		p.end.Store(&end)
		p.timer = time.AfterFunc(p.of.ttl, p.runOut)
	}
	p.mu.Unlock()
	if p.inner != nil {
		p.inner.Abandon()
	}
}

// runOut is the end of a degraded lease that was abandoned.
func (p *lease) runOut() {
	p.mu.Lock()
	given := p.givenBack
	p.mu.Unlock()
	if !given {
		p.lose(true)
	}
}

// lose tells that p is lost; once, and not if the backend's lease was lost and p is degraded.
func (p *lease) lose(really bool) {
	p.mu.Lock()
	if p.gone || p.state.Load() == degraded && !really {
		p.mu.Unlock()
		return
	}
	p.gone = true
	if p.state.Load() == leased {
		p.state.Store(settled)
	}
	if p.lost != nil {
		close(p.lost)
	}
	w, as := p.watcher, p.as
	p.mu.Unlock()
	if w != nil {
		w.LeaseLost(as)
	}
}

// Lost implements distributed.Lease.
func (p *lease) Lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = make(chan struct{})
		if p.gone {
			close(p.lost)
		}
	}
	return p.lost
}
