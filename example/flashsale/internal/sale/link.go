package sale

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/wrap"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// link is the way to the lock service: a Backend that counts the requests to the one behind it and delays them, as a network
// would. Every Enter, Release, Refill and Leave is an exchange with the lock service. Renewals and heartbeats happen inside
// a backend and cannot be seen from here.
//
// The whole round trip passes before the request arrives, and nothing on the way back. Its callers cannot tell that from half
// of it each way: a hand-over, a release here and a grant there, takes one round trip as well. And one long sleep is more
// exact than two short ones: a Go timer below a millisecond lasts longer than it should.
type link struct {
	distributed.Observable // every backend here is: a lock service that is away is noticed by the first exchange that fails, also a renewal
	rtt                    time.Duration
	requests               atomic.Int64
}

// travel is the way of a request. One that its caller gives up arrives at once, for the backend to sort out what it may leave
// behind: a lease to release, a place in the queue.
func (l *link) travel(ctx context.Context) {
	l.requests.Add(1)
	if l.rtt > 0 {
		_ = sqlshop.Sleep(ctx, l.rtt)
	}
}

func (l *link) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l.travel(ctx)
	lease, place, err := l.Observable.Enter(ctx, req)
	if lease != nil {
		lease = l.lease(lease)
	}
	if place != nil {
		place = wrap.Place(&linkedPlace{place, l}, l.lease)
	}
	return lease, place, err
}

func (l *link) lease(inner distributed.Lease) distributed.Lease { return &linkedLease{inner, l} }

type linkedLease struct {
	distributed.Lease
	link *link
}

// Unwrap lets the backend find its own lease in Request.Prev.
func (l *linkedLease) Unwrap() distributed.Lease { return l.Lease }

func (l *linkedLease) Refill(ctx context.Context) error {
	l.link.travel(ctx)
	return l.Lease.Refill(ctx)
}

func (l *linkedLease) Release(ctx context.Context) error {
	l.link.travel(ctx)
	return l.Lease.Release(ctx)
}

type linkedPlace struct {
	distributed.Place
	link *link
}

func (p *linkedPlace) Leave(ctx context.Context) error {
	p.link.travel(ctx)
	return p.Place.Leave(ctx)
}
