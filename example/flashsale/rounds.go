package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// errTryLater is the answer to a buyer that was refused. It is no failure: other buyers were served instead.
var errTryLater = errors.New("sold out, try later")

// round is one way to sell, with the same stock and buyers as the others.
type round struct {
	id     string // of its product; also the key of the lock
	title  string
	unsafe bool // it may oversell
	locked bool // buyers wait for each other
	fenced bool // orders carry a fence
	shared bool // orders of one batch carry the same
	open   func(*instance) (clerk, closer, error)
}

// rounds follow each other, but on the page, where all sell at the same time, on the same cores.
var rounds = []round{
	{id: "piece-a", title: "no lock", unsafe: true, open: withoutLock},
	{id: "piece-b", title: "one tier", locked: true, open: withBackendOnly},
	{id: "piece-c", title: "wllock", locked: true, fenced: true, open: withWllock},
	{id: "piece-d", title: "batches", locked: true, fenced: true, shared: true, open: withBatches},
}

// instance is one shop server in one round.
type instance struct {
	settings
	system  string // the first part of every lock name
	product string
	shop    *shop
	sql     *sqlshop.Shop // instead of shop, for -db
	backend distributed.Backend
	coming  context.Context      // its end is that of the arrivals, not of the orders; nil: all buyers come
	late    time.Duration        // how long the sale had been going on when it opened
	opened  func(*wllock.Locker) // is called with its Locker, if it has one; may be nil
}

// clerk serves one visit: nil means bought, errSoldOut and errTryLater are answers, any other error is a failure.
type clerk func(ctx context.Context, v *visit) error

// closer closes what a clerk needed and returns when all of it has ended.
type closer func(ctx context.Context) error

// visit is one buyer in the shop.
type visit struct {
	buyer   string
	arrived time.Time
	waited  time.Duration
	letIn   bool
}

// enter is called by a clerk when the buyer has the lock, if there is one.
func (v *visit) enter() {
	v.waited, v.letIn = time.Since(v.arrived), true
}

// withoutLock lets every buyer in at once.
func withoutLock(i *instance) (clerk, closer, error) {
	sell := func(ctx context.Context, v *visit) error {
		return i.shop.Order(ctx, i.product, v.buyer)
	}
	return sell, func(context.Context) error { return nil }, nil
}

// withBackendOnly sends every buyer to the lock service, as a plain distributed lock does: all buyers of all instances wait
// there, and each needs a lease of its own.
func withBackendOnly(i *instance) (clerk, closer, error) {
	sell := func(ctx context.Context, v *visit) error {
		lease, err := i.lease(ctx, v.buyer)
		if err != nil {
			return err
		}
		v.enter()
		err = i.shop.Order(ctx, i.product, v.buyer)
		return errors.Join(err, lease.Release(context.WithoutCancel(ctx)))
	}
	return sell, func(context.Context) error { return nil }, nil
}

// lease waits for the lock in the queue of the lock service, where each buyer counts as an instance.
func (i *instance) lease(ctx context.Context, buyer string) (distributed.Lease, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, i.Wait, errTryLater)
	defer cancel()
	for {
		lease, place, err := i.backend.Enter(ctx, distributed.Request{
			Key: i.system + ":product:" + i.product, Instance: buyer, TTL: i.ttl(),
		})
		switch {
		case ctx.Err() != nil && lease == nil && place == nil:
			return nil, context.Cause(ctx)
		case err != nil || lease != nil:
			return lease, err
		}
		select {
		case lease, ok := <-place.Granted():
			if ok {
				return lease, nil
			} // the place was lost, so enter again
		case <-ctx.Done():
			_ = place.Leave(context.WithoutCancel(ctx)) // what it cannot release expires
			return nil, context.Cause(ctx)
		}
	}
}

// leaseTTL is the default of a Locker, so that both rounds with a lock use the same.
const leaseTTL = 5 * time.Second

func (i *instance) ttl() time.Duration { return cmp.Or(i.TTL, leaseTTL) }

// withWllock lets the buyers of an instance wait in their own queue, up to a threshold; others are refused at once.
func withWllock(i *instance) (clerk, closer, error) {
	locker, err := i.locker()
	if err != nil {
		return nil, nil, err
	}
	sell := func(ctx context.Context, v *visit) error {
		return locker.Do(ctx, "product", i.product, func(ctx context.Context) error {
			v.enter()
			held, _ := wllock.HeldFrom(ctx)
			return i.orderFenced(ctx, v.buyer, held.Fence())
		})
	}
	return sell, locker.Close, nil
}

// locker is an instance's own. Close it.
func (i *instance) locker() (*wllock.Locker, error) {
	locker, err := wllock.New(i.system, i.backend,
		wllock.WithThreshold(i.Threshold),
		wllock.WithLeaseTTL(i.ttl()),
		wllock.WithDefaults(wllock.WithWait(i.Wait), wllock.WithFallback(tryLater)),
	)
	if err == nil && i.opened != nil {
		i.opened(locker)
	}
	return locker, err
}

func (i *instance) orderFenced(ctx context.Context, buyer string, fence uint64) error {
	if i.sql != nil {
		return i.sql.OrderFenced(ctx, i.product, buyer, fence)
	}
	return i.shop.OrderFenced(ctx, i.product, buyer, fence)
}

// tryLater answers a buyer for which the queue was too long. An outage of the lock service remains a failure.
func tryLater(_ context.Context, err error) error {
	if errors.Is(err, wllock.ErrQueueFull) || errors.Is(err, wllock.ErrWaitTimeout) {
		return errTryLater
	}
	return err
}
