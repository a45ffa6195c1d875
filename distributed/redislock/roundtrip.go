package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

const (
	// coldTrips are the round trips of the first exchange on a new connection: HELLO, SELECT if there is a database to
	// choose, and the exchange itself. Any exchange may be the first on its connection.
	coldTrips = 3
	// remeasure is how often the round trip is measured again, at most, because a TTL is refused.
	remeasure = 100 * time.Millisecond
)

// measure finds out how long a round trip takes now.
func (b *Backend) measure(ctx context.Context, tag string) error {
	rtt, err := b.s.tr.Ping(ctx, tag)
	if err == nil {
		b.s.rtt.Store(int64(rtt))
	}
	return err
}

// fastEnough refuses a TTL that is too short for this network, as it is now: the server was perhaps slow when it was asked
// last.
func (b *Backend) fastEnough(ctx context.Context, key string, ttl time.Duration) error {
	if longEnough(ttl, b.s.roundTrip()) {
		return nil
	}
	if last := b.measured.Load(); time.Since(time.Unix(0, last)) > remeasure {
		b.measured.Store(time.Now().UnixNano())
		if err := b.measure(conn.Within(ctx, conn.LongestTry), key); err != nil && ctx.Err() == nil {
			return conn.Unavailable("enter", err)
		}
		b.judged.Store(int64(b.s.roundTrip()))
	}
	// Not the round trip measured last: an Echo that was sent into a silence and answered at its end may have come since.
	rtt := time.Duration(b.judged.Load())
	if longEnough(ttl, rtt) {
		return nil
	}
	return conn.Unavailable("enter", conn.Refusal(fmt.Errorf("a lease TTL of %v is too short for round trips of %v: it takes %v",
		ttl, rtt.Round(time.Millisecond/10), shortestTTL(rtt))))
}

// longEnough reports that a lease can be granted and claimed in its claim window (rule R5), even if the grant and the claim
// both go over new connections.
func longEnough(ttl, rtt time.Duration) bool {
	window := distributed.ClaimWindow(ttl)
	return 2*coldTrips*rtt+distributed.Drift(window) < window
}

// shortestTTL is the shortest, in steps of 10 ms, that longEnough accepts.
func shortestTTL(rtt time.Duration) time.Duration {
	const step = 10 * time.Millisecond
	ttl := max(distributed.MinTTL, (4 * coldTrips * rtt).Truncate(step))
	for !longEnough(ttl, rtt) {
		ttl += step
	}
	return ttl
}
