package main

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// modes are the ways to sell on the database of -db: the one that oversells, and the five that do not. Their orders are in
// internal/sqlshop, order.go and batch.go.
var modes = []round{
	{id: "none", title: "none", unsafe: true, open: direct((*sqlshop.Shop).ReadThenWrite)},
	{id: "optimistic", title: "optimistic", open: direct((*sqlshop.Shop).Optimistic)},
	{id: "pessimistic", title: "pessimistic", open: direct((*sqlshop.Shop).Pessimistic)},
	{id: "statement", title: "statement", open: direct((*sqlshop.Shop).OneStatement)},
	{id: lockMode, title: lockMode, locked: true, fenced: true, open: withWllock},
	{id: batchMode, title: batchMode, locked: true, fenced: true, shared: true, open: withBatches},
}

const (
	lockMode  = "lock"
	batchMode = "batch"
)

const modesAllowed = "none, optimistic, pessimistic, statement, lock, batch"

// modeIndex returns the place of a mode in modes, or -1.
func modeIndex(name string) int {
	for i, m := range modes {
		if m.id == name {
			return i
		}
	}
	return -1
}

// locks reports whether a mode needs the lock service.
func locks(name string) bool { return modes[modeIndex(name)].locked }

// direct sends every buyer to the database, which queues them in front of its connections.
func direct(order func(s *sqlshop.Shop, ctx context.Context, product, buyer string) error) func(*instance) (clerk, closer, error) {
	return func(i *instance) (clerk, closer, error) {
		sell := func(ctx context.Context, v *visit) error {
			ctx, cancel := context.WithTimeoutCause(ctx, i.Wait, errTryLater)
			defer cancel()
			return order(i.sql, ctx, i.product, v.buyer)
		}
		return sell, func(context.Context) error { return nil }, nil
	}
}

// withBatches lets one buyer take those along that wait behind it, and sells to all of them in one transaction.
func withBatches(i *instance) (clerk, closer, error) {
	locker, err := i.locker()
	if err != nil {
		return nil, nil, err
	}
	buy := wllock.WrapBatch(locker, "product", func(string) string { return i.product }, i.sellBatch)
	sell := func(ctx context.Context, v *visit) error {
		entered, err := buy(ctx, v.buyer)
		if !entered.IsZero() {
			v.waited, v.letIn = entered.Sub(v.arrived), true
		}
		return err
	}
	return sell, locker.Close, nil
}

// sellBatch sells to the buyers of a batch. The result of each is when it began.
func (i *instance) sellBatch(ctx context.Context, batch []*wllock.Item[string, time.Time]) error {
	buyers, entered := make([]string, len(batch)), time.Now()
	for n, item := range batch {
		buyers[n], item.Result = item.Arg, entered
	}
	held, _ := wllock.HeldFrom(ctx)
	sold, err := i.batchFenced(ctx, buyers, held.Fence())
	if err != nil && !errors.Is(err, errSoldOut) {
		return err
	}
	for _, late := range batch[sold:] {
		late.Err = errSoldOut
	}
	return nil
}

func (i *instance) batchFenced(ctx context.Context, buyers []string, fence uint64) (sold int, err error) {
	if i.sql != nil {
		return i.sql.BatchFenced(ctx, i.product, buyers, fence)
	}
	return i.shop.BatchFenced(ctx, i.product, buyers, fence)
}
