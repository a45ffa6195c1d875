package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
)

// attempt is one Enter and what came of it. It is registered from before it is sent until it has ended.
//
//	asking ──a majority of votes──▶ leased, or claiming first if little is left of W
//	   ├─no majority──▶ waiting ──votes of a majority──▶ leased, or claiming first
//	   │                  └─Leave─▶ ended: silence
//	   └─held (NoWait), no majority answers, cancelled──▶ ended: rolled back on every server
type attempt struct {
	b        *Backend
	in       *space // of its key's system
	asked    uint64 // the number of its id: when, in microseconds; or later, if another came at that time
	token    string
	instance string // as scripts know it
	keys     []string
	lane     int
	mode     distributed.Mode
	ttl      time.Duration
	noWait   bool

	item deadline.Item[*attempt] // the next heartbeat; guarded by Backend.beats
	due  time.Time               // when it is due; guarded by mu

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
	heir     *attempt               // has taken over the place; see restart
	splits   int                    // questions about a split vote, without interruption
	repeats  int                    // of the question that enters, to servers that have failed
	why      error                  // of the majority that has failed and is asked again; nil: none has
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
	id := b.attempts.next()
	a := &attempt{
		b: b, in: b.space(conn.SystemOf(req.Key)), asked: id.Number, token: tokenOf(id, b.process),
		lane: laneOf(req.Key), keys: keysOf(req.Key), mode: req.Mode, ttl: req.TTL,
		noWait: req.NoWait, instance: instanceName(req.Instance), seats: make([]seat, len(b.nodes)), settled: make(chan struct{}),
	}
	a.item.Owner = a
	return a
}

func (a *attempt) key() string           { return a.keys[0] }
func (a *attempt) window() time.Duration { return distributed.ClaimWindow(a.ttl) }

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
	k := a.question(c, done)
	k.until = until
	n.send(k)
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
	waited := a.granted != nil
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
	a.extendVotes(until, func(v verdict) {
		a.mu.Lock()
		then := nothing
		switch {
		case a.state != claiming: // left, cancelled or closed meanwhile
		case v == granted:
			then = a.deliver(distributed.Validity(sent, a.ttl))
		case a.granted != nil && v == unavailable && !distributed.Over(time.Now(), until):
			then = func() { a.claim(until) }
		case a.granted != nil: // the votes have expired: wait on
			a.state = waiting
			then = func() { a.beat(everyNode) }
		default:
			then = a.fail(a.b.unavailable("enter", keyless.Errorf("answers take longer than the claim window")))
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
	err := keyless.Errorf("redlock: enter: %w", ctx.Err())
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		if t := a.tally(); t.votes+t.waits < a.b.quorum { // the servers did not answer in time
			a.observe(ctx.Err())
			why := ctx.Err()
			if a.why != nil {
				why = conn.Expired(why, a.why)
			}
			err = distributed.Unavailable("redlock: enter", why)
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
