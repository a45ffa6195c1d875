package outage

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/watch"
)

// Release implements distributed.Lease. Of a degraded one there is nothing to be given back but what the backend may
// still have of a lease that ran out, which nobody waits for.
func (p *lease) Release(ctx context.Context) error {
	if p.settle() {
		p.giveUpInner()
		return nil
	}
	return p.inner.Release(ctx)
}

// StartRelease implements distributed.AsyncLease.
func (p *lease) StartRelease() bool {
	if p.settle() {
		p.giveUpInner()
		return true
	}
	return p.inner.StartRelease()
}

// settle says that p is being given up, so that it does not become degraded any more. It reports whether it is. Of nil
// it does nothing.
func (p *lease) settle() (is bool) {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenBack = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.state.Load() == leased {
		p.state.Store(settled)
	}
	return p.state.Load() == degraded
}

func (p *lease) giveUpInner() {
	if p.inner != nil {
		p.inner.StartRelease() // the answer goes to LeaseReleased, where it is of no interest
	}
}

// instead passes on the answer to an Enter that named p as Prev and that the backend has not answered. With an error the
// caller sees to p itself. Of nil it does no more.
func (p *lease) instead(l distributed.Lease, place distributed.Place, err error) (distributed.Lease, distributed.Place, error) {
	if p != nil && err == nil {
		p.StartRelease()
	}
	return l, place, err
}

// givenUp is for an Enter that named p as Prev and was answered. Of nil it does nothing.
func (p *lease) givenUp() {
	if p != nil && p.inner != nil {
		watch.Stop(p.inner)
	}
}

// unwrapped is what the backend knows as Prev; nil, if it knows nothing of it.
func (p *lease) unwrapped() distributed.Lease {
	if p == nil || p.inner == nil {
		return nil
	}
	return watch.Inner(p.inner)
}

// Watch implements distributed.AsyncLease.
func (p *lease) Watch(w distributed.Watcher, as distributed.Lease) {
	p.mu.Lock()
	p.watcher, p.as = w, as
	p.mu.Unlock()
	if p.inner != nil {
		p.inner.Watch(p, p.inner)
	}
}

// LeaseLost implements distributed.Watcher, for the backend's lease: if it ran out, p may be degraded; if it ended before
// its time, the backend has said so, which settles it.
func (p *lease) LeaseLost(distributed.Lease) {
	if !p.without(time.Now()) {
		p.lose(false)
	}
}

// LeaseContended implements distributed.Watcher.
func (p *lease) LeaseContended(distributed.Lease) {
	if w, as := p.told(); w != nil {
		w.LeaseContended(as)
	}
}

// LeaseReleased implements distributed.Watcher.
func (p *lease) LeaseReleased(_ distributed.Lease, err error) {
	if w, as := p.told(); w != nil {
		w.LeaseReleased(as, err)
	}
}

// told returns who is told of what the backend says; nil: p has no part in it any more.
func (p *lease) told() (distributed.Watcher, distributed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() == degraded {
		return nil, nil
	}
	return p.watcher, p.as
}

// LeaseRenewed implements distributed.RenewalWatcher: every renewal tells of the backend, too.
func (p *lease) LeaseRenewed(_ distributed.Lease, sent time.Time, err error) {
	if err == nil {
		p.of.answered()
	} else {
		p.of.failed(sent)
	}
	p.mu.Lock()
	w, as := p.watcher, p.as
	p.mu.Unlock()
	if r, ok := w.(distributed.RenewalWatcher); ok {
		r.LeaseRenewed(as, sent, err)
	}
}
