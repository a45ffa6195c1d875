package redlock

import (
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
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

// considerWaiting looks whether the place has a majority, or what to do about a split vote. The caller holds mu.
func (a *attempt) considerWaiting() func() {
	if a.tally().judge() == granted {
		return a.win()
	}
	busy, voted := false, false
	for i := range a.seats {
		busy = busy || a.seats[i].busy
		voted = voted || a.seats[i].given()
	}
	if busy && a.hanging() {
		return nothing // more is known soon
	}
	if voted {
		if r := a.rival(); r.owner != "" {
			return a.yield(r)
		}
	}
	a.schedule(voted)
	return nothing
}

// hanging reports that fewer than a majority have answered: what they say is no basis for a decision. The caller holds mu.
func (a *attempt) hanging() bool {
	answered := 0
	for i := range a.seats {
		if !a.seats[i].busy {
			answered++
		}
	}
	return answered < a.b.quorum
}

// rival returns the attempt that is to have our votes: one that has a majority, or else the oldest of those among which the
// vote is split, if that is another (rule Q4). All instances choose alike, so the votes meet. What was said before we got our last
// vote tells of the holder before us, and so may what was said in the same round: the servers are asked once more before. The
// caller holds mu.
func (a *attempt) rival() (r standing) {
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

// yield gives our votes to another attempt. The caller holds mu.
func (a *attempt) yield(to standing) func() {
	now := time.Now()
	var sends []func()
	for i := range a.seats {
		s := &a.seats[i]
		if s.busy || !s.given() {
			continue
		}
		c := a.call(yieldScript, modeLetter(a.mode), s.yield(now), a.asked, to.owner, to.mode, millis(to.rest))
		k := a.question(c, a.beaten)
		sends = append(sends, func() { a.b.nodes[i].send(k) })
	}
	if len(sends) == 0 {
		a.schedule(true)
		return nothing
	}
	a.b.splits.Add(1)
	return func() {
		for _, send := range sends {
			send()
		}
	}
}

// beaten takes the answer to a heartbeat or a yield.
func (a *attempt) beaten(k *ask) {
	s := standing{}
	if k.Err == nil {
		s = readStanding(k.Reply)
		if s.kind == 0 {
			k.Err = errUnreadable
		}
	}
	a.answered(k, s)
}

// schedule plans the next heartbeat. The caller holds mu.
func (a *attempt) schedule(voted bool) {
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
	if voted && !a.mostYoung(now) { // a split vote that is ours to win, or notices are on their way
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
	a.beatAt(now.Add(next))
}

// beatAt plans the next heartbeat, beatBy one that comes no later: what messages say puts none off. The caller holds mu.
func (a *attempt) beatAt(at time.Time) {
	a.due = at
	a.b.beats.Put(&a.item, at)
}

func (a *attempt) beatBy(at time.Time) {
	if a.state == waiting && (a.due.IsZero() || at.Before(a.due)) {
		a.beatAt(at)
	}
}

// mostYoung reports that a majority votes for us and waits to count. The caller holds mu.
func (a *attempt) mostYoung(now time.Time) bool {
	n, longest := 0, a.longest()
	for i := range a.seats {
		if a.seats[i].young(now, a.ttl, longest) {
			n++
		}
	}
	return n > len(a.seats)-a.b.quorum
}

// heartbeat is called by the timer with the places whose heartbeats are due.
func (b *Backend) heartbeat(_ time.Time, due []*attempt) {
	for _, a := range due {
		a.beat(everyNode)
	}
}

const everyNode = -1

// beat sends a heartbeat to one server, or to all; not to one that has not answered the last question.
func (a *attempt) beat(only int) {
	a.mu.Lock()
	if a.state != waiting {
		a.mu.Unlock()
		return
	}
	now := time.Now()
	asks := make([]*ask, len(a.seats))
	for i := range a.seats {
		if s := &a.seats[i]; !s.busy && (only == everyNode || only == i) {
			asks[i] = a.question(a.call(heartbeatScript, modeLetter(a.mode), s.ask(now), a.asked), a.beaten)
		}
	}
	a.beatAt(now.Add(distributed.HeartbeatInterval(a.ttl))) // in case that nobody answers
	a.mu.Unlock()
	for i, k := range asks {
		if k != nil {
			a.b.nodes[i].send(k)
		}
	}
}

// noticed takes a vote that a server has published.
func (a *attempt) noticed(n *node, m message) {
	a.in.learn(m.longest)
	m.age = a.in.trust(n.index, time.Time{}, m.age)
	a.mu.Lock()
	then := nothing
	switch a.state {
	case asking, waiting:
		if a.seats[n.index].noticed(m, time.Now()) {
			a.lastVote, a.splits = time.Now(), 0
			due := a.due
			if then = a.consider(); !due.IsZero() {
				a.beatBy(due)
			}
		} else {
			a.beatBy(time.Now().Add(expiryMargin)) // only a heartbeat can tell
		}
	case leased:
		if a.lease.over() { // it was lost, and is not renewed
			then = func() { a.leaveAgain(n) }
		}
	case ended:
		then = func() { a.leaveAgain(n) }
	}
	a.mu.Unlock()
	then()
}
