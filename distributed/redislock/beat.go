package redislock

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// maxBeating bounds the batches of heartbeats under way, as the Keeper bounds renewals.
	maxBeating = 4
	// maxBatch bounds the calls of one pipeline: the server answers nobody else meanwhile.
	maxBatch = 128
	// A foreigner does not tell when it unlocks, so the head of a queue asks: soon at first, for most locks are
	// short, then seldom enough to be no load. Few heads wait for foreigners at a time.
	firstPoll, slowPoll = 5 * time.Millisecond, 50 * time.Millisecond
	// expiryMargin is how long after its announced end a lock is looked at again: PTTL rounds down.
	expiryMargin = time.Millisecond
	// slowestBeat bounds the pause between heartbeats beside leases so long that H is longer: whoever has become the
	// head must hear of it in time to notice that the grant before it was for nobody.
	slowestBeat = time.Second
	// slowestRetry bounds the pause of a place between heartbeats that fail: when the server is back, everybody is
	// served within two of them.
	slowestRetry = 500 * time.Millisecond
)

// beat sends the heartbeats that are due. It runs on the timer's goroutine, which n.beats waits for in Close.
func (n *node) beat(now time.Time, due []*attempt) {
	select {
	case n.beating <- struct{}{}:
		defer func() { <-n.beating }()
	default: // the server does not answer; ask a little later
		for _, a := range due {
			a.again(distributed.HeartbeatInterval(a.ttl) / 4)
		}
		return
	}
	for len(due) > 0 {
		part := due[:min(len(due), maxBatch)]
		n.b.beatBatch(part)
		due = due[len(part):]
	}
}

func (b *Backend) beatBatch(batch []*attempt) {
	calls := make([]*call, len(batch))
	shortest := batch[0].ttl
	for i, a := range batch {
		calls[i] = a.call(beatScript)
		shortest = min(shortest, a.ttl)
	}
	sent := time.Now()
	b.tr.do(within(b.ctx, tryTimeout(shortest)), calls...)
	for i, a := range batch {
		a.beaten(calls[i], sent)
	}
}

// beaten takes the answer to a heartbeat.
func (a *attempt) beaten(c *call, sent time.Time) {
	if c.err != nil {
		a.again(min(distributed.HeartbeatInterval(a.ttl)/2, slowestRetry))
		return
	}
	switch c.word(0) {
	case "lease":
		a.receive(readGrant(c, sent))
	case "place":
		a.mu.Lock()
		if a.state == waiting && sent.After(a.since) {
			a.since = sent
		}
		a.mu.Unlock()
		a.schedule(c)
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == waiting { // else a notice was quicker
			a.end()
		}
	}
}

// schedule plans the next heartbeat from a "place" reply: how many are before us, for how long the lock is taken, and
// whether by a foreigner. Only the head asks more often than the others.
func (a *attempt) schedule(c *call) {
	rank, rest, foreign := c.number(1), time.Duration(c.number(2))*time.Millisecond, c.number(3) == 1
	next := jittered(min(distributed.HeartbeatInterval(a.ttl), slowestBeat) * 9 / 10)
	a.mu.Lock()
	if rank > 0 || !foreign {
		a.polls = 0
	} else {
		next = min(next, pollPause(a.polls))
		a.polls++
	}
	a.mu.Unlock()
	if rank == 0 && rest >= 0 {
		next = min(next, rest+expiryMargin)
	}
	a.later(next)
}

// pollPause doubles from firstPoll to slowPoll and is spread widely, so that many heads do not ask in step.
func pollPause(polls int) time.Duration {
	d := min(firstPoll<<min(polls, 10), slowPoll)
	return d/2 + rand.N(d)
}

func (a *attempt) again(d time.Duration) { a.later(jittered(d)) }

// later plans a heartbeat if the attempt still waits.
func (a *attempt) later(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == waiting {
		a.node.beats.Put(&a.item, time.Now().Add(d))
	}
}
