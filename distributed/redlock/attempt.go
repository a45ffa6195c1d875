package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/deadline"
)

// attempt is one Enter and what came of it. It is registered from before it is sent until it has ended.
//
//	asking ──a majority of votes──▶ leased, or claiming first if little is left of W
//	   ├─no majority──▶ waiting ──votes of a majority──▶ leased, or claiming first
//	   │                  └─Leave─▶ ended: silence
//	   └─held (NoWait), no majority answers, cancelled──▶ ended: rolled back on every server
type attempt struct {
	b        *Backend
	id       uint64
	token    string
	instance string // as scripts know it
	keys     []string
	lane     int
	mode     distributed.Mode
	ttl      time.Duration
	noWait   bool

	item deadline.Item[*attempt] // the next heartbeat; guarded by Backend.beats

	mu       sync.Mutex
	state    attemptState
	seats    []seat
	started  time.Time // of the round that enters
	closed   bool      // the round has waited long enough for the slow
	lingers  bool      // a timer for that has been started
	result   outcome   // valid once settled is closed
	settled  chan struct{}
	granted  chan distributed.Lease // made with the place; holds one, and is sent to in the one change to leased
	lease    *lease                 // set once leased
	splits   int                    // questions about a split vote, without interruption
	repeats  int                    // of the question that enters, to servers that have failed
	polls    int                    // of a foreigner's key, likewise
	lastVote time.Time              // when the last vote was noticed
	isSettle bool
}

type attemptState uint8

const (
	asking attemptState = iota
	waiting
	claiming
	leased
	ended
)

// outcome is what Enter returns.
type outcome struct {
	lease distributed.Lease
	place distributed.Place
	err   error
}

func newAttempt(b *Backend, req distributed.Request) *attempt {
	a := &attempt{
		b: b, id: b.attempts.next(), keys: keysOf(req.Key), mode: req.Mode, ttl: req.TTL, noWait: req.NoWait,
		instance: instanceName(req.Instance), seats: make([]seat, len(b.nodes)), settled: make(chan struct{}),
	}
	a.token, a.lane = tokenOf(a.id, b.process), laneOf(req.Key)
	a.item.Owner = a
	return a
}

func (a *attempt) key() string           { return a.keys[0] }
func (a *attempt) window() time.Duration { return distributed.ClaimWindow(a.ttl) }

// enter asks all servers at once. prev may be nil.
func (a *attempt) enter(prev *lease) {
	noWait, token := 0, ""
	if a.noWait {
		noWait = 1
	}
	if prev != nil {
		token = prev.a.token
		prev.adopt()
	}
	c := a.call(enterScript, modeLetter(a.mode), 1, a.id, noWait, token)
	limit := tryTimeout(a.ttl, a.b.roundTrip())
	a.mu.Lock()
	a.started = time.Now()
	for i := range a.seats {
		a.seats[i].ask(a.started)
	}
	a.mu.Unlock()
	for _, n := range a.b.nodes {
		n.send(&ask{Call: c, lane: a.lane, limit: limit, done: func(k *ask) { a.entered(k, prev) }})
	}
}

// entered takes the answer of one server to enter.
func (a *attempt) entered(k *ask, prev *lease) {
	s := standing{}
	if k.Err == nil {
		if s = readEnter(k.Reply); s.kind == 0 {
			k.Err = conn.Refusal(fmt.Errorf("the server answers %q", k.Reply))
		}
	}
	prev.enterReplied(k.node.index, s.found, k.Err)
	a.answered(k, s)
}

// answered takes what a server says about the attempt, or that it says nothing.
func (a *attempt) answered(k *ask, s standing) {
	if k.Err == nil {
		a.b.learn(s.longest)
	}
	a.mu.Lock()
	seat := &a.seats[k.node.index]
	if k.Err != nil {
		seat.failed(k.Err)
	} else {
		seat.told(s, time.Now(), time.Duration(a.b.longest.Load())*time.Millisecond)
	}
	over := a.state == ended
	then := a.consider()
	a.mu.Unlock()
	if over && k.Err == nil && (s.kind == 'v' || s.kind == 'w') { // it came after the roll-back was sent, and perhaps after that was done
		a.leaveAgain(k.node)
	}
	then()
}

func nothing() {}

// consider decides what follows from the seats. It returns what is to be done once mu is free. The caller holds mu.
func (a *attempt) consider() (then func()) {
	switch a.state {
	case asking:
		return a.considerAsking()
	case waiting:
		return a.considerWaiting()
	}
	return nothing
}

func (a *attempt) considerAsking() func() {
	t := a.tally()
	switch t.judge() {
	case granted:
		a.observe(nil)
		return a.win()
	case unavailable:
		err := a.b.failures(a.errs())
		a.observe(err)
		if again := a.askAgain(err); again != nil {
			return again
		}
		return a.fail(a.b.unavailable("enter", err))
	case refused:
		a.observe(nil)
		if !a.noWait {
			return a.wait()
		}
		if err := a.young(); err != nil {
			return a.fail(a.b.unavailable("enter", err))
		}
		return a.fail(distributed.ErrHeld)
	}
	if !a.lingers && !a.noWait && t.votes+t.waits >= a.b.quorum {
		a.lingers = true
		time.AfterFunc(grace(a.ttl, a.b.roundTrip()), a.closeRound)
	}
	return nothing
}

// askAgain asks the servers again that have failed, after a pause, as long as a vote would have half of its window left: most
// failures are a busy server or a lost connection. It returns nil if a repeat does not help. The caller holds mu.
func (a *attempt) askAgain(err error) func() {
	pause := jittered(doubled(firstBackoff/2, a.repeats, longestBackoff))
	if conn.Classify(err) == conn.Permanent || errors.Is(err, distributed.ErrRefused) || errors.Is(err, distributed.ErrClosed) ||
		time.Since(a.started)+pause > a.window()/2 {
		return nil
	}
	a.repeats++
	noWait := 0
	if a.noWait {
		noWait = 1
	}
	var asks []*ask
	for i := range a.seats {
		if s := &a.seats[i]; s.err != nil {
			s.err = nil
			c := a.call(enterScript, modeLetter(a.mode), s.ask(time.Now()), a.id, noWait, "")
			k := &ask{Call: c, lane: a.lane, limit: tryTimeout(a.ttl, a.b.roundTrip()), done: func(k *ask) { a.entered(k, nil) }}
			k.node = a.b.nodes[i]
			asks = append(asks, k)
		}
	}
	return func() {
		time.AfterFunc(pause, func() {
			for _, k := range asks {
				k.node.send(k)
			}
		})
	}
}

// closeRound ends the wait for slow servers: a majority has answered.
func (a *attempt) closeRound() {
	a.mu.Lock()
	a.closed = true
	then := nothing
	if a.state == asking {
		then = a.consider()
	}
	a.mu.Unlock()
	then()
}

// tally counts the seats. The caller holds mu.
func (a *attempt) tally() tally {
	t := tally{n: len(a.seats), closed: a.closed}
	now := time.Now()
	for i := range a.seats {
		switch s := &a.seats[i]; {
		case s.counts(now, a.window()):
			t.votes++
		case s.standing.kind != 0:
			t.waits++
		case s.err != nil:
			t.errs++
		}
	}
	return t
}

func (a *attempt) errs() []error {
	all := make([]error, len(a.seats))
	for i := range a.seats {
		all[i] = a.seats[i].err
	}
	return all
}

// young returns an error if a majority votes for us and too many of these servers do not count yet (rule Q5).
func (a *attempt) young() error {
	votes, rest := 0, time.Duration(0)
	now := time.Now()
	for i := range a.seats {
		if s := &a.seats[i]; s.standing.kind == 'v' {
			votes++
			rest = max(rest, s.mature.Sub(now))
		}
	}
	if votes < a.b.quorum {
		return nil
	}
	return conn.Refusal(fmt.Errorf("servers were started or flushed less than the longest lease TTL ago and count in %v", rest.Round(time.Millisecond)))
}

// observe reports the round that enters. The caller holds mu.
func (a *attempt) observe(err error) { a.b.exchanged("enter", a.started, err) }

// settle makes Enter return. The caller holds mu.
func (a *attempt) settle(o outcome) {
	if !a.isSettle {
		a.isSettle, a.result = true, o
		close(a.settled)
	}
}

// fail ends the attempt with an error and rolls it back on every server. The caller holds mu.
func (a *attempt) fail(err error) func() {
	a.state = ended
	a.settle(outcome{err: err})
	return a.rollBack
}

// rollBack releases whatever the attempt has on any server, in the background. What a server that is away has keeps others
// there from the lock for W.
func (a *attempt) rollBack() {
	a.b.attempts.forget(a)
	until := time.Now().Add(a.window())
	for _, n := range a.b.nodes {
		a.leaveNode(n, until, nil)
	}
}

// leaveAgain removes what has come to one server after the attempt had ended.
func (a *attempt) leaveAgain(n *node) {
	a.mu.Lock()
	l := a.lease
	a.mu.Unlock()
	if l != nil {
		l.leaveAgain(n)
	} else {
		a.leaveNode(n, time.Now().Add(a.window()), nil)
	}
}

// leaveNode removes what the attempt has on one server; done may be nil.
func (a *attempt) leaveNode(n *node, until time.Time, done func(k *ask)) {
	if done == nil {
		done = func(*ask) {}
	}
	c := a.call(leaveScript, modeLetter(a.mode), 0)
	n.send(&ask{Call: c, lane: a.lane, limit: tryTimeout(a.ttl, a.b.roundTrip()), until: until, done: done})
}

// wait makes the place. The caller holds mu.
func (a *attempt) wait() func() {
	a.state = waiting
	a.granted = make(chan distributed.Lease, 1)
	a.settle(outcome{place: place{a}})
	return a.considerWaiting()
}

// win makes the lease of a majority of votes. With little of W left, which means slow servers, it is claimed before anybody
// uses it. The caller holds mu.
func (a *attempt) win() func() {
	until, _ := a.votedUntil()
	if late(time.Now(), until, a.window()) {
		a.state = claiming
		a.b.beats.Remove(&a.item)
		return func() { a.claim(until) }
	}
	return a.deliver(until)
}

// deliver ends the waiting with a lease. The caller holds mu.
func (a *attempt) deliver(until time.Time) func() {
	l := newLease(a)
	waited := a.state != asking && a.granted != nil
	a.state, a.lease = leased, l
	a.b.beats.Remove(&a.item)
	l.start(until)
	if waited {
		a.granted <- l
	} else {
		a.settle(outcome{lease: l})
	}
	return nothing
}

// claim renews the votes before the lease is delivered.
func (a *attempt) claim(until time.Time) {
	sent := time.Now()
	a.extendVotes(func(held int, lost bool) {
		a.mu.Lock()
		then := nothing
		switch {
		case a.state != claiming: // left, cancelled or closed meanwhile
		case held >= a.b.quorum:
			then = a.deliver(distributed.Validity(sent, a.ttl))
		case a.granted != nil && !lost && !distributed.Over(time.Now(), until):
			then = func() { a.claim(until) }
		case a.granted != nil: // the votes have expired: wait on
			a.state = waiting
			then = func() { a.beat(everyNode) }
		default:
			then = a.fail(a.b.unavailable("enter", errors.New("answers take longer than the claim window")))
		}
		a.mu.Unlock()
		then()
	})
}

// await returns the outcome, or ends with ctx. If both come at once, either wins: what the loser has is rolled back.
func (a *attempt) await(ctx context.Context) (distributed.Lease, distributed.Place, error) {
	select {
	case <-a.settled:
		return a.result.lease, a.result.place, a.result.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	if a.isSettle {
		a.mu.Unlock()
		return a.result.lease, a.result.place, a.result.err
	}
	err := fmt.Errorf("redlock: enter: %w", ctx.Err())
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		if t := a.tally(); t.votes+t.waits < a.b.quorum { // the servers did not answer in time
			a.observe(ctx.Err())
			err = fmt.Errorf("redlock: enter: %w: %w", distributed.ErrUnavailable, ctx.Err())
		}
	}
	then := a.fail(err)
	a.mu.Unlock()
	then()
	return nil, nil, err
}

// close ends the attempt with its Backend. A lease that is held expires by itself; an unread one is released.
func (a *attempt) close() {
	a.mu.Lock()
	then := nothing
	switch {
	case a.state == asking || a.state == claiming && a.granted == nil:
		then = a.fail(distributed.ErrClosed)
	case a.state == waiting || a.state == claiming:
		a.state = ended
		close(a.granted)
		then = a.rollBack
	case a.state == leased && a.granted != nil:
		select {
		case l := <-a.granted: // unread, so ours to release
			close(a.granted)
			then = func() { l.(*lease).StartRelease() }
		default:
		}
	}
	a.mu.Unlock()
	then()
}

// stale reports that nobody needs to find the attempt any more.
func (a *attempt) stale() bool {
	if !a.mu.TryLock() {
		return false // in use
	}
	defer a.mu.Unlock()
	if a.state == leased {
		left, _ := a.lease.At(time.Now())
		return left <= 0
	}
	return a.state == ended
}
