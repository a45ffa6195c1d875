package redlock

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

const (
	// slowestBeat bounds the pause between heartbeats when leases are so long that H is longer: the head of a queue must notice
	// in time that a grant went to a dead instance.
	slowestBeat = time.Second
	// A foreigner sends no notice when it unlocks, so the head of a queue polls: often at first, because most locks are short,
	// then seldom enough to be no load.
	firstPoll, slowPoll = 5 * time.Millisecond, 50 * time.Millisecond
	// expiryMargin is how long after its announced end a lock is looked at again: PTTL rounds down.
	expiryMargin = time.Millisecond
	// holderPatience is the part of H for which another is seen with a majority before it gets our vote. Most likely it is being
	// released, and the other servers are slower. If not, it holds the lock while this server votes for us, and with our vote it
	// can do without one server more.
	holderPatience = 4
)

// consider looks whether the place has a majority, or what to do about a split vote. It returns what is to be done once mu is free. plan takes
// when to look again. The caller holds mu.
func (a *bid) consider(plan func(*attempt, driver.Standing)) (then func()) {
	t := a.tally()
	switch {
	case t.judge() == granted:
		s := a.win()
		return func() { a.a.Stands(s) }
	case t.busy > t.n-a.b.quorum: // fewer than a majority have answered, which is no basis for a decision
		return nothing
	case t.given > 0:
		if r := a.rival(); r.owner != "" {
			if asks := a.yield(r); len(asks) > 0 {
				return func() { sendAll(asks) }
			}
		}
	}
	s := a.queued(t)
	return func() { plan(a.a, s) }
}

// queued is how a place stands. The caller holds mu.
func (a *bid) queued(t tally) driver.Standing {
	return driver.Standing{Kind: driver.Queued, Sent: a.started, Holder: a.holder(), Next: a.next(t)}
}

// rival returns the attempt that is to have our votes: one that has a majority, or else the oldest of those among which the
// vote is split, if that is another (rule Q4). All instances choose alike, so the votes meet. What was said before we got our last
// vote tells of the holder before us, and so may what was said in the same round: the servers are asked once more before. The
// caller holds mu.
func (a *bid) rival() (r standing) {
	if a.splits == 0 {
		return r
	}
	seen := map[string]int{}
	oldest := standing{owner: a.token}
	for i := range a.seats {
		s := a.seats[i].standing
		if s.kind != 'w' || s.mode != "x" && s.mode != "s" || a.seats[i].answered.sent.Before(a.lastVote) || s.rest < 2*a.b.roundTrip() {
			continue // or about to expire: it is perhaps not renewed any more
		}
		if seen[s.owner]++; seen[s.owner] >= a.b.quorum {
			since := a.lastVote
			if since.IsZero() {
				since = a.started
			}
			if time.Since(since) < distributed.HeartbeatInterval(a.ttl)/holderPatience {
				return r
			}
			return s
		}
		if older(s.owner, oldest.owner) {
			oldest = s
		}
	}
	if oldest.owner == a.token {
		return r
	}
	return oldest
}

// yield gives our votes to another bid, on the servers that can be asked for now. The caller holds mu.
func (a *bid) yield(to standing) (asks []*ask) {
	now := time.Now()
	for i, n := range a.b.nodes {
		if s := &a.seats[i]; !s.busy && s.given() {
			c := a.call(yieldScript, modeLetter(a.mode), s.yield(now), a.asked, to.owner, to.mode, millis(to.rest))
			asks = append(asks, a.question(n, c, a.beaten))
		}
	}
	if len(asks) > 0 {
		a.b.splits.Add(1)
	}
	return asks
}

// beaten takes the answer to a heartbeat or a yield.
func (a *bid) beaten(k *ask) {
	s := standing{}
	if k.Err == nil {
		s = readStanding(k.Reply)
		if s.kind == 0 {
			k.Err = errUnreadable
		}
	}
	a.answered(k, s)
}

// next is when to send the next heartbeat. The caller holds mu.
func (a *bid) next(t tally) time.Duration {
	heartbeat := distributed.HeartbeatInterval(a.ttl)
	next := jittered(min(heartbeat, slowestBeat) * 9 / 10)
	foreign, now, longest := false, time.Now(), a.longest()
	for i := range a.seats {
		s := &a.seats[i]
		if s.young(now, a.ttl, longest) {
			next = min(next, max(s.mature(longest).Sub(now), firstPoll))
		}
		if s.standing.kind != 'w' || s.standing.rank > 0 {
			continue
		}
		foreign = foreign || s.standing.mode == "f"
		if s.standing.rest >= 0 {
			next = min(next, s.standing.rest+expiryMargin)
		}
	}
	if t.given > 0 && t.young <= t.n-a.b.quorum { // a split vote that is ours to win, or notices are on their way
		next = min(next, splitPause(a.splits, a.b.roundTrip(), heartbeat))
		a.splits++
	} else {
		a.splits = 0
	}
	if foreign {
		d := doubled(firstPoll, a.polls, slowPoll)
		next = min(next, d/2+rand.N(d))
		a.polls++
	} else {
		a.polls = 0
	}
	return next
}

// beat sends a heartbeat to all servers that have answered the last question. It reports false if the bid does not wait.
func (a *bid) beat() (waits bool) {
	var asks []*ask
	a.mu.Lock()
	waits = a.phase == waiting
	for i, n := range a.b.nodes {
		if s := &a.seats[i]; waits && !s.busy {
			asks = append(asks, a.question(n, a.call(heartbeatScript, modeLetter(a.mode), s.ask(time.Now()), a.asked), a.beaten))
		}
	}
	a.mu.Unlock()
	sendAll(asks)
	return waits
}

// sooner plans a heartbeat because of a message, which puts none off (rule Q11).
func sooner(a *attempt, s driver.Standing) { a.LookSooner(s.Next) }

// noticed takes a vote that a server has published.
func (a *bid) noticed(n *node, m message) {
	if a.hasEnded() { // or it was lost, and is not renewed
		a.leave(n)
		return
	}
	a.in.learn(m.longest)
	m.age = a.in.trust(n.index, time.Time{}, m.age)
	a.mu.Lock()
	then := nothing
	switch believed := a.phase < won && a.seats[n.index].noticed(m, time.Now()); {
	case a.phase == ended: // meanwhile
		then = func() { a.leave(n) }
	case believed:
		a.lastVote, a.splits = time.Now(), 0
		if a.phase == waiting {
			then = a.consider(sooner)
		} else {
			a.tell()
		}
	default:
		then = func() { a.a.LookSooner(expiryMargin) } // only a heartbeat can tell
	}
	a.mu.Unlock()
	then()
}
