package main

import (
	"context"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// modes are the ways to sell on the database of -db: the one that oversells, and the four that do not. Their orders are in
// internal/sqlshop/order.go.
var modes = []round{
	{id: "none", title: "none", unsafe: true, open: direct((*sqlshop.Shop).ReadThenWrite)},
	{id: "optimistic", title: "optimistic", open: direct((*sqlshop.Shop).Optimistic)},
	{id: "pessimistic", title: "pessimistic", open: direct((*sqlshop.Shop).Pessimistic)},
	{id: "statement", title: "statement", open: direct((*sqlshop.Shop).OneStatement)},
	{id: lockMode, title: lockMode, locked: true, fenced: true, open: withWllock},
}

const lockMode = "lock"

const modesAllowed = "none, optimistic, pessimistic, statement, lock"

// modeIndex returns the place of a mode in modes, or -1.
func modeIndex(name string) int {
	for i, m := range modes {
		if m.id == name {
			return i
		}
	}
	return -1
}

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
