package redislock

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/deadline"
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

// heartbeats keeps the places of one node (rule R7): each heartbeat refreshes a place, and finds a grant whose message was
// lost.
type heartbeats struct {
	s     *session
	due   *deadline.Set[*attempt]
	slots chan struct{} // one for each batch under way
}

func newHeartbeats(s *session) *heartbeats {
	h := &heartbeats{s: s, slots: make(chan struct{}, maxHeartbeats)}
	h.due = deadline.New(h.send)
	return h
}

// send sends the heartbeats that are due. It runs on the timer's goroutine; closing h.due waits for it.
func (h *heartbeats) send(now time.Time, due []*attempt) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default: // the server does not answer; ask a little later
		for _, a := range due {
			a.heartbeatIn(jittered(distributed.HeartbeatInterval(a.ttl) / 4))
		}
		return
	}
	for len(due) > 0 {
		batch := due[:min(len(due), conn.MaxBatch)]
		h.sendBatch(batch)
		due = due[len(batch):]
	}
}

func (h *heartbeats) sendBatch(batch []*attempt) {
	calls := make([]*conn.Call, len(batch))
	shortest := batch[0].ttl
	for i, a := range batch {
		calls[i] = a.wire.heartbeat()
		shortest = min(shortest, a.ttl)
	}
	sent := time.Now()
	h.s.try(h.s.ctx, shortest, calls...)
	for i, a := range batch {
		a.heartbeatAnswered(calls[i], sent)
	}
}

func (a *attempt) heartbeatAnswered(c *conn.Call, sent time.Time) {
	if c.Err != nil {
		pause := jittered(min(distributed.HeartbeatInterval(a.ttl)/2, slowestRetry)) - time.Since(sent)
		a.heartbeatIn(max(pause, firstPause)) // at once if that one was waited for: a place outlives one that is lost
		return
	}
	switch s := readStanding(c.Reply, sent); s.kind {
	case hasLease:
		a.receive(s.grant)
	case hasPlace:
		a.mu.Lock()
		if a.state == waiting && sent.After(a.since) {
			a.since = sent
		}
		a.mu.Unlock()
		a.schedule(s.position, sent)
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == waiting { // else a message was quicker
			a.end()
		}
	}
}

// schedule plans the heartbeat of a place after one that was sent then. Over a slow network the next one is sent as soon as
// that one is answered. Only the head of the queue asks more often than the others.
func (a *attempt) schedule(p position, sent time.Time) {
	next := jittered(min(distributed.HeartbeatInterval(a.ttl), slowestHeartbeat) * 9 / 10)
	next = max(next-time.Since(sent), firstPause)
	a.mu.Lock()
	a.holder = p.holder
	if p.rank > 0 || !p.foreign {
		a.polls = 0
	} else {
		next = min(next, pollPause(a.polls))
		a.polls++
	}
	a.mu.Unlock()
	if p.rank == 0 && p.rest >= 0 {
		next = min(next, p.rest+expiryMargin)
	}
	a.heartbeatIn(next)
}

// pollPause doubles from firstPoll to slowPoll and is spread widely, so that many heads do not ask in step.
func pollPause(polls int) time.Duration {
	d := min(firstPoll<<min(polls, 10), slowPoll)
	return d/2 + rand.N(d)
}
