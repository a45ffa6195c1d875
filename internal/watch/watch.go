// Package watch lets the users of leases treat them all alike: Async adds the abilities of distributed.AsyncLease to a
// lease that lacks them.
package watch

import (
	"context"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Async returns l if it calls back by itself, else l with a goroutine that polls it from Watch until it ends.
func Async(l distributed.Lease) distributed.AsyncLease {
	if a, ok := l.(distributed.AsyncLease); ok {
		return a
	}
	return &pollingLease{Lease: l, ended: make(chan struct{})}
}

// Inner returns the lease that Async was given: what a Request names as Prev.
func Inner(l distributed.AsyncLease) distributed.Lease {
	if p, ok := l.(*pollingLease); ok {
		return p.Lease
	}
	return l
}

// Stop ends the polling of a lease that an Enter has released as its Prev.
func Stop(l distributed.AsyncLease) {
	if p, ok := l.(*pollingLease); ok {
		p.stop()
	}
}

// pollingLease adds the abilities of AsyncLease to a plain Lease, at the price of a goroutine.
type pollingLease struct {
	distributed.Lease
	watcher distributed.Watcher // set by Watch, before anything can happen
	as      distributed.Lease   // the same
	once    sync.Once
	ended   chan struct{} // closed when a release begins, also one by Enter
}

// Unwrap returns the lease as its backend made it, or as a decorator did.
func (p *pollingLease) Unwrap() distributed.Lease { return p.Lease }

// Watch implements distributed.AsyncLease.
func (p *pollingLease) Watch(w distributed.Watcher, as distributed.Lease) {
	p.watcher, p.as = w, as
	if a, ok := distributed.As[distributed.AsyncLease](p.Lease); ok {
		a.Watch(relay{p}, as)
	}
	go p.poll()
}

// At implements distributed.AsyncLease.
func (p *pollingLease) At(now time.Time) (time.Duration, bool) {
	return distributed.Left(now, p.Until()), p.Healthy()
}

func (p *pollingLease) poll() {
	select {
	case <-p.Lost():
		p.watcher.LeaseLost(p.as)
	case <-p.ended:
	}
}

// Release implements distributed.Lease.
func (p *pollingLease) Release(ctx context.Context) error {
	p.stop()
	return p.Lease.Release(ctx)
}

func (p *pollingLease) stop() { p.once.Do(func() { close(p.ended) }) }

// StartRelease implements distributed.AsyncLease.
func (p *pollingLease) StartRelease() bool {
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), p.Until()) // later it has expired anyway
		defer cancel()
		p.watcher.LeaseReleased(p.as, p.Release(ctx))
	}()
	return false
}

// relay passes on the events of a lease inside a decorated one, except those that the polling of the outer one reports.
type relay struct{ to *pollingLease }

func (relay) LeaseLost(distributed.Lease)            {}
func (relay) LeaseReleased(distributed.Lease, error) {}
func (r relay) LeaseContended(l distributed.Lease)   { r.to.watcher.LeaseContended(l) }
func (r relay) LeaseRenewed(l distributed.Lease, sent time.Time, err error) {
	if w, ok := r.to.watcher.(distributed.RenewalWatcher); ok {
		w.LeaseRenewed(l, sent, err)
	}
}
