package redislock

import (
	"context"
	"math"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// Observe implements distributed.Observable. It reports every request: of callers, heartbeats, renewals, releases and probes, each pipeline
// once.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.client.Observe(f) }

// Echo implements distributed.Observable. In a cluster each call asks another node.
func (b *Backend) Echo(ctx context.Context) error {
	if b.client.Closed() {
		return distributed.ErrClosed
	}
	var before string
	if last := b.echoed.Load(); last != nil {
		before = *last
	}
	tag := b.s.tr.Elsewhere(ctx, before)
	b.echoed.Store(&tag)
	err := b.measure(conn.Within(ctx, pingBudget), tag)
	switch {
	case conn.Answered(err):
		return nil
	case b.client.Closed():
		return distributed.ErrClosed
	default:
		return conn.Unavailable("echo", err)
	}
}

// ttlMemory is how long a TTL in use is remembered at least.
const ttlMemory = 5 * time.Minute

// LongestTTL implements distributed.TTLRegistry.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	if b.client.Closed() {
		return 0, distributed.ErrClosed
	}
	ttl := min(own, math.MaxInt64/4) // twice as long is remembered
	c := longestTTL(system, ttl+time.Millisecond-1, max(ttlMemory, 2*ttl))
	if err := b.apart(ctx, func() error {
		_, err := b.s.ask(ctx, c, ttl, distributed.ClaimWindow(ttl))
		return err
	}); err != nil {
		return 0, err
	}
	return max(own, readLongestTTL(c.Reply)), nil
}
