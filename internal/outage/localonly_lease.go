package outage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// lease is what callers work under with LocalOnly (rule T9): a lease of the backend as long as that lasts, and afterwards,
// or from the start, only their turn.
//
//	leased ── expires unrenewed while the backend is known to be away ──▶ degraded
//	   ├── expires otherwise, or the backend disowns it ──▶ ended: lost
//	   └── its release begins ──▶ ended
//
// The first look after the backend's lease has expired decides, be it a read of the clock (Until, At) or the timer that
// reports the end (LeaseLost). The decision is made once, under mu, and all later looks give the same answer. A renewal
// that is answered after it changes nothing: the backend's lease is abandoned then.
//
// A degraded lease lasts until it is released; abandoned, T longer. It is handed on only while callers are let in without
// a lease, in the one outage it was in: in between others may have taken the lock.
type lease struct {
	of    *LocalOnly
	inner distributed.Lease // nil: degraded from the start
	state atomic.Uint32     // leaseState; written under mu; goes up once
	end   atomic.Pointer[time.Time]

	during *outage // of a degraded one; set before state is

	mu        sync.Mutex // guards all below; never held while calling out
	watcher   distributed.Watcher
	as        distributed.Lease // what the watcher calls p
	abandoned bool
	insisted  bool
	releasing bool
	timer     *time.Timer // of end
	lost      chan struct{}
	gone      bool // lost is closed, or would be
}

const (
	leased uint32 = iota
	degraded
	ended
)

// Adopt implements tenure.Outage.
func (l *LocalOnly) Adopt(got distributed.Lease) distributed.Lease {
	if p, ok := got.(*lease); ok {
		return p
	}
	return &lease{of: l, inner: got}
}

// Unwrap returns the lease of the backend, or nil.
func (p *lease) Unwrap() distributed.Lease { return p.inner }

// degradedLease makes a lease without one of the backend.
func (l *LocalOnly) degradedLease(o *outage) *lease {
	p := &lease{of: l, during: o}
	p.state.Store(degraded)
	return p
}

// Degraded implements tenure.Degradable.
func (p *lease) Degraded() bool { return p.degradedAt(time.Now()) }

func (p *lease) degradedAt(now time.Time) bool {
	switch p.state.Load() {
	case degraded:
		return true
	case ended:
		return false
	}
	left, _ := p.inner.At(now)
	return left <= 0 && p.expired(now)
}

// expired decides what becomes of p, whose backend lease has expired. It reports whether p is degraded.
func (p *lease) expired(now time.Time) bool {
	o := p.of.knownBefore(p.inner.Until(), now)
	p.mu.Lock()
	first := p.state.Load() == leased
	if first && o != nil && !p.abandoned && !p.insisted {
		p.during = o
		p.state.Store(degraded)
	} else if first {
		p.state.Store(ended)
	}
	is := p.state.Load() == degraded
	p.mu.Unlock()
	if first && is {
		p.inner.Abandon()
	}
	return is
}

// Insist implements tenure.Degradable: p is lost when the backend's lease is. The race with expired has one winner, under mu.
func (p *lease) Insist() bool { // rule N1
	p.mu.Lock()
	defer p.mu.Unlock()
	p.insisted = true
	return p.state.Load() != degraded
}

// At implements distributed.Lease. A degraded lease has T left: nothing takes it away sooner.
func (p *lease) At(now time.Time) (left time.Duration, healthy bool) {
	if state := p.state.Load(); state != degraded {
		left, healthy = p.inner.At(now)
		if left > 0 || state == ended || !p.expired(now) {
			return left, healthy
		}
	}
	if end := p.end.Load(); end != nil {
		return distributed.Left(now, *end), false
	}
	return p.of.ttl, p.of.serves(p.during, now)
}

// Healthy implements distributed.Lease.
func (p *lease) Healthy() bool {
	_, healthy := p.At(time.Now())
	return healthy
}

// Until implements distributed.Lease. For a degraded lease it is always T from now.
func (p *lease) Until() time.Time {
	now := time.Now()
	if state := p.state.Load(); state != degraded {
		until := p.inner.Until()
		if state == ended || !distributed.Over(now, until) || !p.expired(now) {
			return until
		}
	}
	if end := p.end.Load(); end != nil {
		return *end
	}
	return now.Add(p.of.ttl)
}

// NextFence implements distributed.Lease. There is none without the backend.
func (p *lease) NextFence() (uint64, bool) {
	if p.degradedAt(time.Now()) {
		return 0, false
	}
	return p.inner.NextFence()
}

// Refill implements distributed.Lease. A lease that gets no fences because the backend is away is of no further use:
// ErrLeaseLost makes the tenure release it and enter again, which is where callers wait for the backend.
func (p *lease) Refill(ctx context.Context) error {
	if p.degradedAt(time.Now()) {
		return errors.ErrUnsupported
	}
	away, err := p.of.ask(ctx, time.Now(), p.inner.Refill)
	if away || ctx.Err() == nil && errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrRefused) {
		return distributed.ErrLeaseLost
	}
	return err
}

// Contended implements distributed.Lease. Without the backend, nothing is known of others that wait.
func (p *lease) Contended() bool { return p.state.Load() != degraded && p.inner.Contended() }

// Wanted implements distributed.Lease.
func (p *lease) Wanted() bool { return p.inner != nil && p.inner.Wanted() }

// HearsRefusals implements distributed.Lease.
func (p *lease) HearsRefusals() bool { return p.inner != nil && p.inner.HearsRefusals() }

// LostError implements distributed.Lease.
func (p *lease) LostError() *distributed.LostError {
	if p.inner == nil {
		return nil
	}
	return p.inner.LostError()
}

// RenewBy implements distributed.Lease.
func (p *lease) RenewBy(at time.Time) {
	if p.inner != nil {
		p.inner.RenewBy(at)
	}
}

// Downgrade implements distributed.Lease.
func (p *lease) Downgrade(ctx context.Context) error {
	if p.inner == nil {
		return errors.ErrUnsupported
	}
	return p.inner.Downgrade(ctx)
}

// Abandon implements distributed.Lease. A lease that is not to be renewed does not become degraded either. The race with
// expired has one winner, under mu.
func (p *lease) Abandon() {
	p.mu.Lock()
	first := !p.abandoned
	p.abandoned = true
	if first && p.state.Load() == degraded && !p.releasing {
		end := time.Now().Add(p.of.ttl)
		p.end.Store(&end)
		p.timer = time.AfterFunc(p.of.ttl, p.expire)
	}
	p.mu.Unlock()
	if p.inner != nil {
		p.inner.Abandon()
	}
}

// expire ends a degraded lease that was abandoned.
func (p *lease) expire() {
	p.mu.Lock()
	releasing := p.releasing
	p.mu.Unlock()
	if !releasing {
		p.lose(true)
	}
}

// lose reports that p is lost; once, and not if only the backend's lease was lost and p is degraded.
func (p *lease) lose(really bool) {
	p.mu.Lock()
	if p.gone || p.state.Load() == degraded && !really {
		p.mu.Unlock()
		return
	}
	p.gone = true
	if p.state.Load() == leased {
		p.state.Store(ended)
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

// Release implements distributed.Lease. A degraded lease has nothing to release except an expired lease of the backend,
// whose release is not awaited.
func (p *lease) Release(ctx context.Context) error {
	if p.finish() {
		p.releaseInner()
		return nil
	}
	return p.inner.Release(ctx)
}

// StartRelease implements distributed.Lease.
func (p *lease) StartRelease() bool {
	if p.finish() {
		p.releaseInner()
		return true
	}
	return p.inner.StartRelease()
}

// finish notes that the release of p begins, so that p does not become degraded any more. It reports whether p is
// degraded. A nil p is not.
func (p *lease) finish() (is bool) {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releasing = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.state.Load() == leased {
		p.state.Store(ended)
	}
	return p.state.Load() == degraded
}

func (p *lease) releaseInner() {
	if p.inner != nil {
		p.inner.StartRelease() // the answer goes to LeaseReleased, which ignores it
	}
}

// known returns what the backend knows as p, for Request.Prev; nil, if it knows nothing of p.
func (p *lease) known() distributed.Lease {
	if p == nil || p.inner == nil {
		return nil
	}
	return p.inner
}

// releaseAfter passes on the answer to an Enter that named p as Prev and that the backend has not answered, and releases
// p. After an error the caller sees to p itself. On nil it only passes on.
func (p *lease) releaseAfter(l distributed.Lease, place distributed.Place, err error) (distributed.Lease, distributed.Place, error) {
	if p != nil && err == nil {
		p.StartRelease()
	}
	return l, place, err
}

// Watch implements distributed.Lease.
func (p *lease) Watch(w distributed.Watcher, as distributed.Lease) {
	p.mu.Lock()
	p.watcher, p.as = w, as
	p.mu.Unlock()
	if p.inner != nil {
		p.inner.Watch(p, p.inner)
	}
}

// LeaseLost implements distributed.Watcher, for the backend's lease: if it expired, p may be degraded. If it ended before its
// time, the backend has said so, and p is lost.
func (p *lease) LeaseLost(distributed.Lease) {
	if !p.degradedAt(time.Now()) {
		p.lose(false)
	}
}

// LeaseContended implements distributed.Watcher.
func (p *lease) LeaseContended(distributed.Lease) {
	if w, as := p.interested(); w != nil {
		w.LeaseContended(as)
	}
}

// LeaseReleased implements distributed.Watcher.
func (p *lease) LeaseReleased(_ distributed.Lease, err error) {
	if w, as := p.interested(); w != nil {
		w.LeaseReleased(as, err)
	}
}

// interested returns the watcher for events of the backend's lease; nil if p is degraded, which they do not concern.
func (p *lease) interested() (distributed.Watcher, distributed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() == degraded {
		return nil, nil
	}
	return p.watcher, p.as
}

// LeaseRenewed implements distributed.Watcher: every renewal says something about the backend, too.
func (p *lease) LeaseRenewed(_ distributed.Lease, sent time.Time, err error) {
	switch j := p.of.judge; {
	case j.observes:
	case err == nil:
		j.answered(time.Now(), 0)
	default:
		j.failed(sent, time.Now(), err)
	}
	p.mu.Lock()
	w, as := p.watcher, p.as
	p.mu.Unlock()
	if w != nil {
		w.LeaseRenewed(as, sent, err)
	}
}
