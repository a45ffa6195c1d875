package redlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// renewal is one extension of one lease, asked of all servers.
//
// A majority that still had our vote has had it ever since, so nobody else can have had a majority meanwhile. A server that has
// lost our vote and is free ("none") is asked to vote anew by the next renewal ("new"), which does not count that time: others may
// have come and gone there. From then on it has our vote without a gap, and later renewals count it (rule Q6), but not for the longest TTL
// if it was restarted: till then a waiter may count on a vote that the server has forgotten. So a lease survives that the servers are
// restarted one after the other.
type renewal struct {
	l    *lease
	sent time.Time

	mu       sync.Mutex
	held     int   // guarded by mu
	gone     int   // guarded by mu; servers that did not have the vote
	failed   int   // guarded by mu; no answer, or of a server that does not count yet
	why      error // guarded by mu
	over     bool  // guarded by mu
	renewed  bool  // by a majority; valid once decided is closed
	lost     bool  // no majority can have it; likewise
	decided  chan struct{}
	onlyThis func(held int, lost bool) // called when decided, in place of the lease's changes
}

// renew is what the Keeper calls. An unread grant is not claimed yet: perhaps nobody will release it (rule K5). All servers are
// asked at once, and the Keeper waits for majorities only.
func (b *Backend) renew(ctx context.Context, due []distributed.Lease) {
	var all []*renewal
	for _, w := range due {
		l := w.(*lease)
		if len(l.a.granted) > 0 {
			l.Postpone()
			continue
		}
		all = append(all, l.extend())
	}
	for _, r := range all {
		select {
		case <-r.decided:
		case <-ctx.Done():
			return
		}
	}
}

// extend asks all servers to extend the lease.
func (l *lease) extend() *renewal {
	r := &renewal{l: l, sent: time.Now(), decided: make(chan struct{})}
	r.send(l.a)
	return r
}

func (r *renewal) send(a *attempt) {
	letter := modeLetter(a.mode)
	if r.l != nil {
		letter = r.l.letter()
	}
	var vacant uint64
	if r.l != nil {
		vacant = r.l.vacant.Load()
	}
	usual := a.renewCall(letter, 0)
	for _, n := range a.b.nodes {
		c := usual
		if vacant&(1<<n.index) != 0 {
			c = a.renewCall(letter, 1)
		}
		n.send(a.question(c, func(k *ask) { r.answer(a, k) }))
	}
}

// extendVotes extends the votes of an attempt that has no lease yet.
func (a *attempt) extendVotes(decided func(held int, lost bool)) {
	r := &renewal{sent: time.Now(), decided: make(chan struct{}), onlyThis: decided}
	r.send(a)
}

func (r *renewal) answered(k *ask) { r.answer(r.l.a, k) }

// answer takes the answer of one server.
func (r *renewal) answer(a *attempt, k *ask) {
	word, waits, age := "", false, time.Duration(0)
	if k.Err == nil {
		word, waits, age = a.readRenewal(k.Reply)
	}
	if word == "new" && a.hasEnded() { // the release was there first
		a.leaveAgain(k.node)
	}
	if r.l != nil {
		if k.Err == nil {
			a.contended(k.node.index, waits, k.sent)
		}
		r.l.vacate(k.node.index, word == "none")
	}
	young, void := age < a.longestNow(), a.isVoid(k.node.index)
	r.mu.Lock()
	switch {
	case word == "", word == "held" && young: // the next time, perhaps
		r.failed++
		r.why = k.Err
	case word == "held" && !void:
		r.held++
	default:
		r.gone++
	}
	then := r.decide(a)
	r.mu.Unlock()
	then()
}

// readRenewal reads the answer of a server: what it does, whether others wait, and how old its data is.
func (a *attempt) readRenewal(reply string) (word string, waits bool, age time.Duration) {
	f := strings.Split(reply, " ")
	if len(f) < 4 {
		return f[0], false, 0
	}
	a.b.learn(number(f[3]))
	return f[0], f[1] == "1", duration(f[2])
}

// decide looks whether the outcome is known. The caller holds mu.
func (r *renewal) decide(a *attempt) func() {
	n := len(a.b.nodes)
	if r.over || r.held < a.b.quorum && !provenLost(n, r.gone) && r.held+r.gone+r.failed < n {
		return nothing
	}
	r.over = true
	r.renewed, r.lost = r.held >= a.b.quorum, provenLost(n, r.gone)
	if r.renewed && r.l != nil && r.l.over() { // too late: another may have held the lock before some votes came back
		r.renewed, r.lost = false, true
	}
	held, why := r.held, r.why
	if r.held+r.gone >= a.b.quorum {
		why = nil
	}
	return func() {
		a.b.exchanged("renew", r.sent, why)
		switch {
		case r.onlyThis != nil:
			r.onlyThis(held, r.lost)
		case r.renewed:
			r.l.Renewed(distributed.Validity(r.sent, a.ttl)) // rule K4
		case r.lost:
			if r.l.End() {
				a.rollBack() // the votes that are left
			}
		} // else the Keeper asks again
		close(r.decided)
	}
}

// vacate notes whether a server has lost our vote and is free.
func (l *lease) vacate(index int, free bool) {
	if free {
		l.vacant.Or(1 << index)
	} else {
		l.vacant.And(^(uint64(1) << index))
	}
}

func (a *attempt) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == ended || a.state == leased && a.lease.over()
}

func (a *attempt) longestNow() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.longest()
}

func (a *attempt) isVoid(index int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seats[index].void
}

// over reports that the lease has ended.
func (l *lease) over() bool {
	left, _ := l.At(time.Now())
	return left <= 0
}
