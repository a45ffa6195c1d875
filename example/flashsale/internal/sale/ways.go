package sale

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// errTryLater is the answer to a buyer that was refused. It is no failure: other buyers were served instead.
var errTryLater = errors.New("sold out, try later")

// Way is one way to sell, with the same stock and buyers as the others.
type Way struct {
	Title  string // also of its product, so the key of the lock
	unsafe bool   // it may oversell
	Locked bool   // buyers wait for each other
	fenced bool   // orders carry a fence
	shared bool   // orders of one batch carry the same
	sell   selling
}

// selling sells a piece, and returns when the buyer had the lock, if there is one. nil: it has bought; sqlshop.ErrSoldOut and errTryLater
// are answers, too.
type selling = func(ctx context.Context, i *instance, buyer string) (entered time.Time, err error)

// Rounds are the ways of the demonstration. They follow each other, but on the page, where all sell at the same time, on the same cores.
var Rounds = []Way{
	{Title: "no lock", unsafe: true, sell: direct((*sqlshop.Shop).ReadThenWrite)},
	{Title: "one tier", Locked: true, sell: withBackendOnly},
	{Title: "wllock", Locked: true, fenced: true, sell: withWllock},
	{Title: "batches", Locked: true, fenced: true, shared: true, sell: withBatches},
}

// modes are the ways to sell on the database of -db: the one that oversells, and the five that do not. Their orders are in
// sqlshop/order.go.
var modes = []Way{
	{Title: "none", unsafe: true, sell: direct((*sqlshop.Shop).ReadThenWrite)},
	{Title: "optimistic", sell: direct((*sqlshop.Shop).Optimistic)},
	{Title: "pessimistic", sell: direct((*sqlshop.Shop).Pessimistic)},
	{Title: "statement", sell: direct((*sqlshop.Shop).OneStatement)},
	{Title: "lock", Locked: true, fenced: true, sell: withWllock},
	{Title: "batch", Locked: true, fenced: true, shared: true, sell: withBatches},
}

func titles(ways []Way) (all []string) {
	for _, w := range ways {
		all = append(all, w.Title)
	}
	return all
}

// wayOf returns the way with a title that is known to be right.
func wayOf(title string) Way {
	all := slices.Concat(Rounds, modes)
	return all[slices.Index(titles(all), title)]
}

// instance is one shop server.
type instance struct {
	*crew
	n      int            // in the sale
	locker *wllock.Locker // of its own; nil: it needs none
	buy    func(ctx context.Context, buyer string) (entered time.Time, err error)
}

// direct sends every buyer to the database, which queues them in front of its connections.
func direct(order func(s *sqlshop.Shop, ctx context.Context, product, buyer string) error) selling {
	return func(ctx context.Context, i *instance, buyer string) (time.Time, error) {
		return time.Time{}, order(i.shop, ctx, i.way.Title, buyer)
	}
}

// withBackendOnly sends every buyer to the lock service, as a plain distributed lock does: all buyers of all instances wait
// there, and each needs a lease of its own.
func withBackendOnly(ctx context.Context, i *instance, buyer string) (entered time.Time, err error) {
	lease, err := i.lease(ctx, buyer)
	if err != nil {
		return entered, err
	}
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }() // what it cannot release expires; the order stands
	return time.Now(), i.shop.ReadThenWrite(ctx, i.way.Title, buyer)
}

// lease waits for the lock in the queue of the lock service, where each buyer counts as an instance.
func (i *instance) lease(ctx context.Context, buyer string) (distributed.Lease, error) {
	for {
		lease, place, err := i.link.Enter(ctx, distributed.Request{Key: i.System + ":product:" + i.way.Title, Instance: buyer, TTL: i.TTL})
		switch {
		case lease == nil && place == nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case place == nil:
			return lease, err
		}
		select { // a grant that comes with the end of patience may be taken; otherwise Leave gives it back
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

// withWllock lets the buyers of an instance wait in their own queue, up to a threshold; others are refused at once.
func withWllock(ctx context.Context, i *instance, buyer string) (entered time.Time, err error) {
	err = i.locker.Do(ctx, "product", i.way.Title, func(ctx context.Context) error {
		entered = time.Now()
		held, _ := wllock.HeldFrom(ctx)
		return i.shop.OrderFenced(ctx, i.way.Title, buyer, held.Fence())
	})
	return entered, err
}

// withBatches lets one buyer take those along that wait behind it.
func withBatches(ctx context.Context, i *instance, buyer string) (time.Time, error) {
	return i.buy(ctx, buyer)
}

// sellBatch sells to all buyers of a batch in one transaction. The result of each is when its batch began.
func (i *instance) sellBatch(ctx context.Context, batch []*wllock.Item[string, time.Time]) error {
	buyers, entered := make([]string, len(batch)), time.Now()
	for n, item := range batch {
		buyers[n], item.Result = item.Arg, entered
	}
	held, _ := wllock.HeldFrom(ctx)
	sold, err := i.shop.BatchFenced(ctx, i.way.Title, buyers, held.Fence())
	if err != nil && !errors.Is(err, sqlshop.ErrSoldOut) {
		return err
	}
	for _, late := range batch[sold:] {
		late.Err = sqlshop.ErrSoldOut
	}
	return nil
}

// openLocker opens what withWllock and withBatches need.
func (i *instance) openLocker() (err error) {
	i.locker, err = wllock.New(i.System, i.link, wllock.WithThreshold(i.Threshold), wllock.WithLeaseTTL(i.TTL),
		wllock.WithDefaults(wllock.WithWait(i.Wait), wllock.WithFallback(tryLater)))
	if err != nil {
		return err
	}
	i.lockers = append(i.lockers, i.locker)
	i.buy = wllock.WrapBatch(i.locker, "product", func(string) string { return i.way.Title }, i.sellBatch)
	return nil
}

// tryLater answers a buyer for which the queue was too long. An outage of the lock service remains a failure.
func tryLater(_ context.Context, err error) error {
	if errors.Is(err, wllock.ErrQueueFull) || errors.Is(err, wllock.ErrWaitTimeout) {
		return errTryLater
	}
	return err
}
