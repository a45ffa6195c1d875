package redlock

import (
	"cmp"
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

	until    time.Time     // of votes that are claimed
	onlyThis func(verdict) // called when decided, in place of the lease's changes

	mu      sync.Mutex
	tally   renewalTally // guarded by mu
	why     error        // guarded by mu
	verdict verdict      // guarded by mu until decided is closed
	decided chan struct{}
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
	r := l.renewal()
	r.send(l.a)
	return r
}

func (l *lease) renewal() *renewal {
	return &renewal{l: l, sent: time.Now(), decided: make(chan struct{}), tally: renewalTally{n: len(l.a.seats)}}
}

func (r *renewal) send(a *attempt) {
	letter, vacant := modeLetter(a.mode), uint64(0)
	if r.l != nil {
		letter, vacant = r.l.letter(), r.l.vacant.Load()
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

// extendVotes extends the votes of an attempt that has no lease yet, which last until then.
func (a *attempt) extendVotes(until time.Time, decided func(verdict)) {
	r := &renewal{until: until, sent: time.Now(), decided: make(chan struct{}), onlyThis: decided, tally: renewalTally{n: len(a.seats)}}
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
	young, void := a.doubts(k.node.index, age)
	r.mu.Lock()
	if word == "" {
		r.why = k.Err
	}
	r.tally.count(word, young, void)
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
	a.in.learn(duration(f[3]))
	return f[0], f[1] == "1", duration(f[2])
}

// decide looks whether the outcome is known. The caller holds mu.
func (r *renewal) decide(a *attempt) func() {
	if r.verdict != pending {
		return nothing
	}
	over := distributed.Over(time.Now(), r.until)
	if r.l != nil {
		over = r.l.over()
	}
	if r.verdict = r.tally.judge(over); r.verdict == pending {
		return nothing
	}
	verdict, why := r.verdict, r.why
	if r.tally.held+r.tally.gone >= a.b.quorum {
		why = nil
	}
	return func() {
		a.b.exchanged("renew", r.sent, why)
		switch {
		case r.onlyThis != nil:
			r.onlyThis(verdict)
		case verdict == granted:
			r.l.Renewed(distributed.Validity(r.sent, a.ttl)) // rule K4
		case verdict == refused:
			if r.l.End() {
				a.rollBack() // the votes that are left
			}
		case r.l != nil:
			r.l.Failed(a.b.unavailable("renew", cmp.Or(why, errLate)))
		}
		close(r.decided)
	}
}

// vacate notes whether a server has lost our vote and is free.
func (l *lease) vacate(index int, free bool) { include(&l.vacant, index, free) }

func (a *attempt) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == ended || a.state == leased && a.lease.over()
}

// doubts tells why what a server says of our lease may not count: its data may be too young, and its votes void.
func (a *attempt) doubts(index int, age time.Duration) (young, void bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return age < a.longest(), a.seats[index].void
}

// over reports that the lease has ended.
func (l *lease) over() bool {
	left, _ := l.At(time.Now())
	return left <= 0
}
