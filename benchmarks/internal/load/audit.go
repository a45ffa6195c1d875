package load

import (
	"context"
	"fmt"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

// audit compares what the database has with what was in it before the round, and with what buyers were told.
func (m Machine) audit(ctx context.Context, c contender.Contender, r *Round) error {
	b, err := m.Stores[c.Store].Audit(ctx)
	if err != nil {
		return fmt.Errorf("audit %s: %w", c.Name, err)
	}
	r.Books = &b
	r.Violations += distance(b.Sold+b.Left, server.Stock) + distance(b.Sold, r.Told)
	r.Fences, r.FencesFallen = b.Fenced, b.Fallen
	if c.Fenced {
		r.FencesFallen += b.Sold - b.Fenced // orders without a fence
	}
	return nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
