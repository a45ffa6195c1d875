package redlock

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/wllock/wllock/distributed/driver"
)

// parting is the end of a bid: what the servers have said to leave.lua, or to an Enter that names the lease as Prev. Both can be under way
// at once, and on each server one of them finds the vote. It is guarded by the mutex of the bid.
type parting struct {
	releases
	adopted bool          // by an Enter that is being sent to every server
	why     error         // of a try that has failed
	verdict verdict       // granted and refused are final; unavailable: all tries are over
	done    chan struct{} // closed with a verdict
}

func newParting(n int) parting {
	return parting{releases: releases{underWay: make([]int, n)}, done: make(chan struct{})}
}

// reopen begins to ask again when all tries were in vain. The caller holds the mutex.
func (p *parting) reopen() {
	if p.verdict == unavailable {
		p.verdict, p.failed, p.done = pending, 0, make(chan struct{})
	}
}

// depart has all servers remove the bid that know of it, and were not asked for that or could not be. It returns a channel that is
// closed when a majority has said what it had, or when none will.
func (a *bid) depart() <-chan struct{} {
	a.mu.Lock()
	p := &a.parting
	p.reopen()
	done, first := p.done, !p.adopted
	var asks []*ask
	for i, n := range a.b.nodes {
		if !a.started.IsZero() && p.verdict == pending && p.underWay[i] == 0 && (p.found|p.missing)&(1<<i) == 0 {
			asks = append(asks, a.leaving(n, first))
		}
	}
	a.mu.Unlock()
	sendAll(asks)
	return done
}

// leave removes from one server what it has, or was heard of, after it was told to remove it.
func (a *bid) leave(n *node) {
	a.mu.Lock()
	k := a.leaving(n, false)
	a.mu.Unlock()
	n.send(k)
}

// leaving is the question that removes the bid from a server. An Enter that adopts the lease before it was sent makes the first one needless.
// The caller holds mu.
func (a *bid) leaving(n *node, first bool) *ask {
	a.parting.underWay[n.index]++
	k := a.question(n, a.call(leaveScript, modeLetter(a.mode), 0), func(k *ask) {
		found := byte(0)
		if k.Err == nil {
			found = k.Reply[0]
		}
		a.parted(n.index, found, true, k.Err)
	})
	if k.until = time.Now().Add(a.window()); !a.until.IsZero() {
		k.until = time.Now().Add(a.ttl) // what it has won lasts no longer
	}
	k.missed = func(k *ask) { a.parted(n.index, 0, false, k.Err) }
	if first {
		k.needless = func() bool { return a.needless(n.index) }
	}
	return k
}

// needless reports that an Enter releases the lease on a server, and that our own question is not under way any more.
func (a *bid) needless(index int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parting.adopted {
		a.parting.underWay[index]-- // the Enter's is left, so nothing is decided by this
	}
	return a.parting.adopted
}

// adopt leaves the release to an Enter that is sent now, on every server.
func (a *bid) adopt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parting.reopen()
	for i := range a.parting.underWay {
		a.parting.underWay[i]++
	}
	a.parting.adopted = true
}

// parted notes the answer of one server to a release: '1' the vote was there, '0' it was not, 0: no answer.
func (a *bid) parted(index int, found byte, over bool, why error) {
	a.mu.Lock()
	p, bit := &a.parting, uint64(1)<<index
	switch found {
	case '1':
		p.found |= bit
	case '0':
		p.missing |= bit
	default:
		p.failed |= bit
		p.why = why
		if mayBeDone(why) {
			p.perhaps |= bit
		}
	}
	if over {
		p.underWay[index]--
	}
	decided := p.verdict == pending
	if decided {
		p.verdict = p.judge()
		if a.until.IsZero() && bits.OnesCount64(p.found|p.missing) >= a.b.quorum { // it has won nothing that could be lost
			p.verdict = granted
		}
		if decided = p.verdict != pending; decided {
			close(p.done)
		}
	}
	a.mu.Unlock()
	if decided {
		a.departed()
	}
}

// departed tells the Backend what has become of the bid, unless another stands for the attempt.
func (a *bid) departed() {
	if a.a == nil || a.a.Wire.bid.Load() != a {
		return
	}
	a.mu.Lock()
	v, why := a.parting.verdict, a.parting.why
	a.mu.Unlock()
	switch {
	case v == granted:
		a.a.Dropped(driver.Removed)
	case v == refused:
		a.a.Dropped(driver.Lost)
	default:
		a.a.Unanswered(a.b.unavailable("release", cmp.Or(why, errLate)))
	}
}

// include puts a server into a set, or takes it out.
func include(set *uint64, index int, is bool) {
	*set &^= 1 << index
	if is {
		*set |= 1 << index
	}
}
