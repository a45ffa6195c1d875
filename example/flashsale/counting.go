package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// counting is a Backend that counts what is asked of the one behind it: every Enter, Release, Refill and Leave is an
// exchange with the lock service. Renewals and heartbeats happen inside a backend and cannot be seen from here.
//
// A lease comes out wrapped, and its wrapping is taken off again when it goes back in as Request.Prev: a backend
// recognizes only what it made itself.
type counting struct {
	distributed.Backend
	requests atomic.Int64
}

func (c *counting) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	c.requests.Add(1)
	req.Prev = unwrap(req.Prev)
	lease, place, err := c.Backend.Enter(ctx, req)
	if lease != nil {
		lease = c.wrap(lease)
	}
	if place != nil {
		place = c.follow(place)
	}
	return lease, place, err
}

// wrap keeps the optional abilities of a lease: it is Watched exactly if the lease is.
func (c *counting) wrap(l distributed.Lease) distributed.Lease {
	if watched, ok := l.(distributed.Watched); ok {
		return &watchedLease{Watched: watched, requests: &c.requests}
	}
	return &plainLease{Lease: l, requests: &c.requests}
}

func unwrap(l distributed.Lease) distributed.Lease {
	switch l := l.(type) {
	case *watchedLease:
		return l.Watched
	case *plainLease:
		return l.Lease
	}
	return l
}

// plainLease counts what is asked of a lease.
type plainLease struct {
	distributed.Lease
	requests *atomic.Int64
}

func (l *plainLease) Refill(ctx context.Context) error {
	l.requests.Add(1)
	return l.Lease.Refill(ctx)
}

func (l *plainLease) Release(ctx context.Context) error {
	l.requests.Add(1)
	return l.Lease.Release(ctx)
}

// watchedLease counts what is asked of a lease that calls back.
type watchedLease struct {
	distributed.Watched
	requests *atomic.Int64
}

func (l *watchedLease) Refill(ctx context.Context) error {
	l.requests.Add(1)
	return l.Watched.Refill(ctx)
}

func (l *watchedLease) Release(ctx context.Context) error {
	l.requests.Add(1)
	return l.Watched.Release(ctx)
}

func (l *watchedLease) StartRelease() bool {
	l.requests.Add(1)
	return l.Watched.StartRelease()
}

// Watch sees to it that the watcher is told of the lease it knows, the wrapped one, not of the one inside.
func (l *watchedLease) Watch(w distributed.Watcher) { l.Watched.Watch(renaming{to: w, lease: l}) }

// renaming passes on what happens to a lease under the name of its wrapping.
type renaming struct {
	to    distributed.Watcher
	lease distributed.Watched
}

func (r renaming) LeaseLost(distributed.Watched)                { r.to.LeaseLost(r.lease) }
func (r renaming) LeaseWanted(distributed.Watched)              { r.to.LeaseWanted(r.lease) }
func (r renaming) LeaseReleased(_ distributed.Watched, e error) { r.to.LeaseReleased(r.lease, e) }

// countedPlace wraps the lease that a place is granted. It costs a goroutine per place, which ends with the grant. What
// has been read from the place inside is received, as its backend sees it, so it is done here what a backend does with
// a grant that nobody takes.
type countedPlace struct {
	distributed.Place
	counting *counting
	granted  chan distributed.Lease // buffered: a grant waits for nobody
	leave    sync.Once
	leaving  chan struct{} // closed when the place is given up
	relayed  chan struct{} // closed when the goroutine has ended
	over     bool          // the place inside has granted, or was lost; may be read after relayed
}

func (c *counting) follow(place distributed.Place) *countedPlace {
	p := &countedPlace{
		Place: place, counting: c,
		granted: make(chan distributed.Lease, 1), leaving: make(chan struct{}), relayed: make(chan struct{}),
	}
	go p.relay()
	return p
}

func (p *countedPlace) relay() {
	defer close(p.relayed)
	select {
	case lease, ok := <-p.Place.Granted():
		p.over = true
		if !ok {
			close(p.granted)
			return
		}
		p.granted <- p.counting.wrap(lease)
		time.AfterFunc(time.Until(lease.Until()), p.expire) // its claim window, for which the others wait
	case <-p.leaving: // if a grant is there as well, it lies unread inside, and Leave gives it back there
	}
}

// expire takes a grant back that nobody has received in time. Its receiver, should he come yet, finds the place lost.
func (p *countedPlace) expire() {
	if lease := p.retract(); lease != nil {
		close(p.granted)
		_ = lease.Release(context.Background()) // what it cannot give back runs out by itself
	}
}

// retract returns the grant if it lies unread, else nil: then it is its receiver's.
func (p *countedPlace) retract() distributed.Lease {
	select {
	case lease := <-p.granted: // nil of a lost place, for its channel is closed
		return lease
	default:
		return nil
	}
}

func (p *countedPlace) Granted() <-chan distributed.Lease { return p.granted }

func (p *countedPlace) Leave(ctx context.Context) error {
	p.leave.Do(func() { close(p.leaving) })
	<-p.relayed
	if !p.over {
		p.counting.requests.Add(1)
		return p.Place.Leave(ctx)
	}
	lease := p.retract()
	if lease == nil {
		return nil
	}
	if err := lease.Release(ctx); !errors.Is(err, distributed.ErrLeaseLost) {
		return err
	}
	return nil
}
