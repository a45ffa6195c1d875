package redislock

import (
	"context"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redislock/internal/conn"
)

// Observe implements distributed.Observable. Every request is reported: of callers, heartbeats, renewals, releases and
// probes, each pipeline once.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.observers.Add(f) }

// Echo implements distributed.Observable. In a cluster it asks another node each time.
func (b *Backend) Echo(ctx context.Context) error {
	if b.attempts.isClosed() {
		return distributed.ErrClosed
	}
	var before string
	if last := b.echoed.Load(); last != nil {
		before = *last
	}
	tag := b.s.tr.Elsewhere(ctx, before)
	b.echoed.Store(&tag)
	_, err := b.s.tr.Ping(conn.Within(ctx, pingBudget), tag)
	switch {
	case conn.Answered(err):
		return nil
	case b.attempts.isClosed():
		return distributed.ErrClosed
	default:
		return conn.Unavailable("echo", err)
	}
}
