package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// remeasure is how often the round trip is measured again, at most, because a TTL is refused.
	remeasure = 100 * time.Millisecond
	// fairTries is how many round trips are measured before a TTL is refused.
	fairTries = 3
	// busyPerTTL and stepsPerTTL are parts of T: what a busy machine may take besides round trips, and the steps of a
	// claim window, so that few are in use.
	busyPerTTL, stepsPerTTL = 16, 16
	// slowerCounts is the inverse of the weight of an exchange that was slower than the round trip is known to be.
	slowerCounts = 32
)

// network is what a request has to reckon with.
type network struct {
	rtt  time.Duration // 0: not known yet
	acks time.Duration // for which a claim may wait for replicas
	cold time.Duration // the round trips of an exchange on a new connection. Any exchange may be the first on its own
}

// network returns what is known of it now.
func (s *session) network() network { return s.over(time.Duration(s.rtt.Load())) }

// over is a network with these round trips.
func (s *session) over(rtt time.Duration) network {
	return network{rtt: rtt, cold: s.coldTrips * rtt, acks: s.acks.Within}
}

// claimWindow is W over this network (rule R5): T/2, and over a slow one as long as it needs to be, up to T. All requests of
// an attempt name the same W, and each grant lasts for as long as its own attempt says, so instances may differ.
func (n network) claimWindow(ttl time.Duration) time.Duration {
	window := distributed.ClaimWindow(ttl)
	if need := n.windowNeed(ttl); need > window {
		step := ttl / stepsPerTTL
		window = min((need+step-1)/step*step, ttl)
	}
	return window.Truncate(time.Millisecond)
}

// windowNeed is how long a claim window must last for an exchange, and a claim on a new connection after it; or for an
// exchange on a new connection, and a claim on the same.
func (n network) windowNeed(ttl time.Duration) time.Duration {
	return n.rtt + n.claimTime(ttl) + distributed.Drift(ttl)
}

// claimTime is how long a claim may take: it may need a new connection, and wait for replicas.
func (n network) claimTime(ttl time.Duration) time.Duration { return n.cold + ttl/busyPerTTL + n.acks }

// observe follows the round trip. An exchange cannot be quicker than the network, so a quicker one counts at once; a slower
// one may be slow for other reasons, and counts little.
func (s *session) observe(x distributed.Exchange) {
	was := s.rtt.Load()
	switch took := int64(x.RTT); {
	case took == 0 || took == was:
	case took < was:
		s.rtt.Store(took) // a lost update does no harm
	case was != 0:
		s.rtt.Store(was + (took-was)/slowerCounts)
	}
}

// measure finds out how long a round trip takes now.
func (b *Backend) measure(ctx context.Context, tag string) error {
	rtt, err := b.s.tr.Ping(ctx, tag)
	if err == nil {
		b.s.rtt.Store(int64(rtt))
	}
	return err
}

// fastEnough refuses a TTL that is too short for this network, as it is now: the server was perhaps slow when it was asked
// last. After an Enter without an answer the network is perhaps slower than is known: tries, which are timed by the known
// round trip, might be broken off for ever, so it is measured with more patience.
func (b *Backend) fastEnough(ctx context.Context, key string, ttl time.Duration) error {
	if b.s.network().allows(ttl) && !b.doubted.Load() {
		return nil
	}
	if last := b.measured.Load(); time.Since(time.Unix(0, last)) > remeasure {
		b.measured.Store(time.Now().UnixNano())
		switch err := b.measureAgain(ctx, key, ttl); {
		case errors.Is(err, distributed.ErrUnreached) && b.s.network().allows(ttl):
			return nil // the Enter has patience with that
		case err != nil:
			return err
		}
	}
	// Not the round trip as it is known now: an Echo that was sent into a silence and answered at its end may have come since.
	judged := b.s.over(time.Duration(b.judged.Load()))
	if judged.allows(ttl) {
		return nil
	}
	rtt, shortest := judged.rtt.Round(time.Millisecond/10), judged.shortestTTL()
	why := keyless.Errorf("a lease TTL of %v is too short for round trips of %v: use at least %v", ttl, rtt, shortest)
	if judged.acks > 0 {
		why = keyless.Errorf("a lease TTL of %v is too short for round trips of %v and replicas that may take %v: use at least %v", ttl, rtt, judged.acks, shortest)
	}
	return conn.Unavailable("enter", conn.Refusal(why))
}

// measureAgain judges the network by the quickest of a few round trips: one may have needed a new connection, or have met a
// busy moment.
func (b *Backend) measureAgain(ctx context.Context, key string, ttl time.Duration) error {
	var quickest time.Duration
	for range fairTries {
		err := b.measure(conn.Within(ctx, max(conn.LongestTry, ttl)), key)
		if err != nil && ctx.Err() == nil {
			return conn.Unavailable("enter", err)
		}
		if rtt := b.s.network().rtt; quickest == 0 || rtt < quickest {
			quickest = rtt
		}
		if b.s.over(quickest).allows(ttl) || ctx.Err() != nil {
			break
		}
	}
	b.judged.Store(int64(quickest))
	if ctx.Err() == nil {
		b.doubted.Store(false)
	}
	return nil
}

// allows reports that leases of this TTL can be granted and claimed over this network (rule R5).
func (n network) allows(ttl time.Duration) bool { return n.windowNeed(ttl) <= ttl }

// shortestTTL is the shortest, in steps of 10 ms, that is allowed.
func (n network) shortestTTL() time.Duration {
	const step = 10 * time.Millisecond
	ttl := max(distributed.MinTTL, n.cold.Truncate(step))
	for !n.allows(ttl) {
		ttl += step
	}
	return ttl
}
