package main

import (
	"context"
	"sync/atomic"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/wrap"
)

// counting is a Backend that counts the requests to the one behind it: every Enter, Release, Refill and Leave is an
// exchange with the lock service. Renewals and heartbeats happen inside a backend and cannot be seen from here.
type counting struct {
	distributed.Backend
	requests atomic.Int64
}

func (c *counting) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	c.requests.Add(1)
	lease, place, err := c.Backend.Enter(ctx, req)
	if lease != nil {
		lease = c.lease(lease)
	}
	if place != nil {
		place = wrap.Place(&countedPlace{Place: place, requests: &c.requests}, c.lease)
	}
	return lease, place, err
}

func (c *counting) lease(l distributed.Lease) distributed.Lease {
	return &countedLease{Lease: l, requests: &c.requests}
}

type countedLease struct {
	distributed.Lease
	requests *atomic.Int64
}

// Unwrap lets the backend find its own lease in Request.Prev.
func (l *countedLease) Unwrap() distributed.Lease { return l.Lease }

func (l *countedLease) Refill(ctx context.Context) error {
	l.requests.Add(1)
	return l.Lease.Refill(ctx)
}

func (l *countedLease) Release(ctx context.Context) error {
	l.requests.Add(1)
	return l.Lease.Release(ctx)
}

type countedPlace struct {
	distributed.Place
	requests *atomic.Int64
}

func (p *countedPlace) Leave(ctx context.Context) error {
	p.requests.Add(1)
	return p.Place.Leave(ctx)
}
