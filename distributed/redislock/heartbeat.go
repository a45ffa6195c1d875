package redislock

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
)

const (
	// maxHeartbeats bounds the batches of heartbeats under way with one node, as the Keeper bounds renewals.
	maxHeartbeats = 4
	// A foreigner sends no message when it unlocks, so the head of a queue polls (rule R12): often at first, because most
	// locks are short, then seldom enough to be no load. Few heads wait for foreigners at a time.
	firstPoll, slowPoll = 5 * time.Millisecond, 50 * time.Millisecond
	// expiryMargin is how long after its announced end a lock is looked at again: PTTL rounds down.
	expiryMargin = time.Millisecond
	// slowestHeartbeat bounds the pause between heartbeats when leases are so long that H is longer: an instance that has
	// become the head must learn of it in time to notice that the grant before it went to a dead one.
	slowestHeartbeat = time.Second
	// slowestRetry bounds the pause of a place between heartbeats that fail: when the server is back, everybody is
	// served within two of them.
	slowestRetry = 500 * time.Millisecond
)

// Look implements driver.Driver: a heartbeat refreshes each place, and finds a grant whose message was lost (rule R7). While the server
// does not answer, it comes a little later.
func (half) Look(ctx context.Context, some []*attempt) {
	n := some[0].Wire.node
	select {
	case n.beats <- struct{}{}:
		defer func() { <-n.beats }()
		n.sendBatch(ctx, some)
	default:
		for _, a := range some {
			a.LookIn(jittered(distributed.HeartbeatInterval(a.TTL) / 4))
		}
	}
}

func (n *node) sendBatch(ctx context.Context, batch []*attempt) {
	if batch = n.sendTogether(ctx, batch); len(batch) > 0 {
		n.sendEach(ctx, batch)
	}
}

// sendTogether sends one call for those places of a batch that are like the first one, and returns the rest: of others, and of what the server
// has left to a heartbeat, or refuses for all together, perhaps because of one key that we may not use.
func (n *node) sendTogether(ctx context.Context, batch []*attempt) (rest []*attempt) {
	first, some := batch[0].Wire.fixed, make([]*attempt, 0, len(batch))
	for _, a := range batch {
		if f := a.Wire.fixed; a.Mode == distributed.Exclusive && f.exclusive == modeExclusive && f.single && f.ttl == first.ttl && f.window == first.window {
			some = append(some, a)
		} else {
			rest = append(rest, a)
		}
	}
	if len(some) < 2 {
		return batch
	}
	c, sent := heartbeatAll(len(some), func(i int) *wireAttempt { return &some[i].Wire.wireAttempt }), time.Now()
	n.b.s.try(ctx, first.ttl, c)
	if c.Err != nil && conn.Classify(c.Err) != conn.Transient {
		return batch
	}
	answers := strings.Split(c.Reply, "\n")
	for i, a := range some {
		one := &conn.Call{Err: c.Err}
		if c.Err == nil {
			if i >= len(answers) || answers[i] == "" {
				rest = append(rest, a)
				continue
			}
			one.Reply = answers[i]
		}
		n.b.heartbeatAnswered(a, one, sent)
	}
	return rest
}

func (n *node) sendEach(ctx context.Context, batch []*attempt) {
	calls := make([]*conn.Call, len(batch))
	shortest := batch[0].TTL
	for i, a := range batch {
		calls[i] = a.Wire.heartbeat()
		shortest = min(shortest, a.TTL)
	}
	sent := time.Now()
	n.b.s.try(ctx, shortest, calls...)
	for i, a := range batch {
		n.b.heartbeatAnswered(a, calls[i], sent)
	}
}

func (b *Backend) heartbeatAnswered(a *attempt, c *conn.Call, sent time.Time) {
	if c.Err != nil {
		pause := jittered(min(distributed.HeartbeatInterval(a.TTL)/2, slowestRetry)) - time.Since(sent)
		a.LookIn(max(pause, firstPause)) // at once if that one was waited for: a place outlives one that is lost
		return
	}
	s := b.stands(a, readStanding(c.Reply, sent), sent)
	if s.Kind == driver.Refused {
		a.Gone()
		return
	}
	s.Pushed = a.Wire.tried.Load() // a late one may be of a grant before: a claim would find the lock, but with a larger fence
	a.Stands(s)
}

// next is when to send a heartbeat after one that was sent then. Over a slow network that is as soon as that one is answered.
// Only the head of the queue asks more often than the others.
func (c *claim) next(ttl time.Duration, p position, sent time.Time) time.Duration {
	next := jittered(min(distributed.HeartbeatInterval(ttl), slowestHeartbeat) * 9 / 10)
	next = max(next-time.Since(sent), firstPause)
	if p.rank > 0 || !p.foreign {
		c.polls.Store(0)
	} else {
		next = min(next, pollPause(int(c.polls.Add(1))-1))
	}
	if p.rank == 0 && p.rest >= 0 {
		next = min(next, p.rest+expiryMargin)
	}
	return next
}

// pollPause doubles from firstPoll to slowPoll and is spread widely, so that many heads do not ask in step.
func pollPause(polls int) time.Duration {
	d := min(firstPoll<<min(polls, 10), slowPoll)
	return d/2 + rand.N(d)
}
