package redlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

// lease is a majority of votes in use. keepalive.Lease keeps it alive; what is here is its fences and its release.
type lease struct {
	keepalive.Lease
	a        *attempt
	shared   atomic.Bool   // also after Downgrade has begun
	contends atomic.Uint64 // set of the servers where others wait
	vacant   atomic.Uint64 // set of the servers that have lost our vote and may vote again
	fences   parts.Fences

	mu      sync.Mutex // guards what follows
	parting parting
}

// parting is a release: what the servers have said to leave.lua, or to an Enter that names the lease as Prev. Both can be under
// way at once, and on each server one of them finds the vote.
type parting struct {
	releases
	begun   bool
	adopted bool  // by an Enter that is being sent to every server
	why     error // of a try that has failed
	decided bool
	err     error // valid once decided
	done    chan struct{}
	watched bool // StartRelease was called: the answer goes to the Watcher
}

func newLease(a *attempt) *lease {
	l := &lease{a: a, parting: parting{releases: releases{underWay: make([]int, len(a.seats))}, done: make(chan struct{})}}
	if a.mode == distributed.Shared {
		l.shared.Store(true)
		l.fences.Share(0)
	}
	return l
}

// start has the lease kept. It is claimed when a third of the claim window has passed: most holds have ended by then and never
// pay for it. The caller holds attempt.mu.
func (l *lease) start(until time.Time) {
	window := l.a.window()
	claim := time.Now().Add(window / 3)
	if latest := until.Add(distributed.Drift(window) - 2*window/3); latest.Before(claim) {
		claim = latest
	}
	for i := range l.a.seats {
		if l.a.seats[i].standing.contended {
			l.contends.Or(1 << i)
		}
	}
	l.a.b.keeper.Keep(&l.Lease, l, l.a.ttl, until, claim)
	l.SetContended(l.waited()) // no watcher yet, so nothing is called back
}

// contention notes whether others wait on one server. One is enough: it may be the first to hear of a waiter. The caller holds attempt.mu,
// so what is noted last was heard last.
func (l *lease) contention(index int, waits bool) { include(&l.contends, index, waits) }

// include puts a server into a set, or takes it out.
func include(set *atomic.Uint64, index int, is bool) {
	if is {
		set.Or(1 << index)
	} else {
		set.And(^(uint64(1) << index))
	}
}

// tellContended passes on what was noted, with no mutex held. Of several at once each looks again after it has told, so what is told
// last is so.
func (l *lease) tellContended() {
	for {
		waits := l.waited()
		l.SetContended(waits)
		if l.waited() == waits {
			return
		}
	}
}

func (l *lease) waited() bool { return l.contends.Load() != 0 }

func (l *lease) letter() string {
	if l.shared.Load() {
		return "s"
	}
	return "x"
}

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	if l.a.b.attempts.isClosed() {
		return distributed.ErrClosed
	}
	if !l.Finish() {
		l.a.rollBack()
		return distributed.ErrLeaseLost
	}
	l.begin(false)
	t := time.NewTimer(time.Until(l.Until())) // until then tries go on
	defer t.Stop()
	why := errLate
	select {
	case <-l.parting.done:
	case <-t.C:
	case <-ctx.Done():
		why = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := &l.parting; p.decided {
		return p.err
	} else if p.why != nil {
		why = p.why
	}
	return l.a.b.unavailable("release", why)
}

// StartRelease implements distributed.Lease.
func (l *lease) StartRelease() bool {
	if !l.Finish() {
		l.a.rollBack()
		l.Released(distributed.ErrLeaseLost)
		return false
	}
	l.begin(true)
	return false
}

// begin sends the release to every server, unless that was done before; an Enter with the lease as Prev may do it at the same time.
func (l *lease) begin(watched bool) {
	l.fences.Close()
	l.mu.Lock()
	p := &l.parting
	p.watched = p.watched || watched && !p.decided
	decided, err := p.decided && watched, p.err
	send := !p.begun && !p.decided
	p.begun = true
	if send {
		for i := range p.underWay {
			p.underWay[i]++
		}
	}
	l.mu.Unlock()
	if decided {
		l.Released(err)
	}
	if send {
		for _, n := range l.a.b.nodes {
			l.leaveFirst(n)
		}
	}
	l.end()
}

// end makes late answers to earlier questions be rolled back.
func (l *lease) end() {
	l.a.mu.Lock()
	l.a.state = ended
	l.a.mu.Unlock()
	l.a.b.attempts.forget(l.a)
}

// leaveAgain releases a vote that has come, or was heard of, after the release was sent there. Whichever of the two finds it
// there counts.
func (l *lease) leaveAgain(n *node) {
	l.mu.Lock()
	l.parting.underWay[n.index]++
	l.mu.Unlock()
	l.leaveNode(n)
}

func (l *lease) leaveNode(n *node) { n.send(l.leaving(n)) }

// leaveFirst is leaveNode for the first try, which an Enter that comes before it was sent makes needless.
func (l *lease) leaveFirst(n *node) {
	k := l.leaving(n)
	k.needless = func() bool { return l.needless(n.index) }
	n.send(k)
}

// leaving is the question that releases the lease on a server.
func (l *lease) leaving(n *node) *ask {
	k := l.a.question(l.a.call(leaveScript, l.letter(), 0), l.left)
	k.until = laterOf(l.Until(), time.Now().Add(l.a.window()))
	k.missed = func(k *ask) { l.parted(n.index, 0, false, k.Err) }
	return k
}

// needless reports that an Enter releases the lease on a server, and that our own question is not under way any more.
func (l *lease) needless(index int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parting.adopted {
		l.parting.underWay[index]-- // the Enter's is left, so nothing is decided by this
	}
	return l.parting.adopted
}

// left takes the answer to leave.
func (l *lease) left(k *ask) {
	found := byte(0)
	if k.Err == nil {
		found = k.Reply[0]
	}
	l.parted(k.node.index, found, true, k.Err)
}

// parted notes the answer of one server to a release: '1' the vote was there, '0' it was not, 0: no answer.
func (l *lease) parted(index int, found byte, over bool, why error) {
	l.mu.Lock()
	p, bit := &l.parting, uint64(1)<<index
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
	notify := p.decide(l.a.b)
	err := p.err
	l.mu.Unlock()
	if notify {
		l.Released(err)
	}
}

// decide looks whether the outcome is known, and reports whether the watcher is to be notified. The caller holds the lease's mu.
func (p *parting) decide(b *Backend) (notify bool) {
	if p.decided {
		return false
	}
	switch p.judge() {
	case pending:
		return false
	case refused:
		p.err = distributed.ErrLeaseLost
	case unavailable: // the lease has expired
		p.err = b.unavailable("release", cmp.Or(p.why, errLate))
		if errors.Is(p.why, distributed.ErrClosed) {
			p.err = distributed.ErrClosed
		}
	}
	p.decided = true
	close(p.done)
	return p.watched
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// adopt leaves the release to an Enter that is sent now, on every server.
func (l *lease) adopt() {
	l.fences.Close()
	l.mu.Lock()
	for i := range l.parting.underWay {
		l.parting.underWay[i]++
	}
	l.parting.begun, l.parting.adopted = true, true
	l.mu.Unlock()
	l.end()
}

// enterReplied takes what one server has said of the lease to the Enter that has adopted it. It does nothing for nil.
func (l *lease) enterReplied(index int, found byte, err error) {
	switch {
	case l == nil:
	case err != nil:
		l.parted(index, 0, false, err)
		l.leaveNode(l.a.b.nodes[index]) // after all
	default:
		l.parted(index, found, true, nil)
	}
}

// enterFailed releases the lease after all: the Enter that was to do it has asked nobody. It does nothing for nil.
func (l *lease) enterFailed() {
	if l != nil {
		l.begin(false)
	}
}

// Downgrade implements distributed.Lease.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.a.mode == distributed.Shared {
		return nil
	}
	if l.over() {
		return distributed.ErrLeaseLost
	}
	l.shared.Store(true) // before it is sent: whatever becomes of it, renewals reckon with it
	g := newGathering(l.a.b, "downgrade")
	c := l.a.call(downgradeScript, "s", 0, millis(l.a.ttl))
	r := l.renewal()
	for _, n := range l.a.b.nodes {
		n.send(l.a.question(c, func(k *ask) { r.answered(k); g.done(k) }))
	}
	if err := g.wait(ctx, time.Until(l.Until())); err != nil {
		return err
	}
	select {
	case <-r.decided:
	case <-ctx.Done():
		return distributed.Unavailable("redlock: downgrade", ctx.Err())
	}
	switch {
	case r.verdict == refused:
		return distributed.ErrLeaseLost
	case r.verdict != granted:
		return l.a.b.unavailable("downgrade", errLate)
	case l.a.b.fences:
		l.fences.Share(0)
		return l.Refill(ctx)
	}
	return nil
}

// renewCall returns a renewal; revote 1: by a server that has lost our vote.
func (a *attempt) renewCall(letter string, revote int) conn.Call {
	return a.call(renewScript, letter, 0, millis(a.ttl), revote)
}
