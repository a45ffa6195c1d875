package redislock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/conn"
)

// lease is a grant in use. keepalive.Lease keeps it alive; what is here is its fences and its release:
//
//	held ──Release, StartRelease──────▶ releasing
//	held, releasing ──Prev of an Enter─▶ adopted: the Enter releases it
//	adopted ──the Enter failed────────▶ releasing, in the background
//	releasing ──reply to leave────────▶ released: the answer is known
//	adopted ──reply to enter or leave─▶ released
//
// What waits to release an adopted lease need not be sent. If a leave and an Enter are both under way, the reply to leave
// may say that the Enter was first ("later"): then only the reply to the Enter says what became of the lease.
type lease struct {
	keepalive.Lease
	a      *attempt
	first  uint64 // the fence in the lock's value
	fences fences
	change atomic.Uint32 // of an exclusive lease to a shared one; goes up

	mu      sync.Mutex // guards what follows
	state   releaseState
	named   bool          // has been adopted: an Enter may have released it, though that has failed
	err     error         // of the release; valid once released
	done    chan struct{} // closed then; made when somebody waits
	watched bool          // StartRelease was called: the answer goes to the Watcher
}

type releaseState uint8

const (
	held releaseState = iota
	releasing
	adopted
	released
)

// newLease makes the lease of a grant; start lets its time run.
func newLease(a *attempt, g grant) *lease {
	l := &lease{a: a, first: g.fence}
	l.fences.open(g.fence, g.count, a.mode == distributed.Shared && !a.permit)
	a.wire.space.see(g.fence + g.count - 1)
	return l
}

// start has the lease kept. It is claimed in the background when a third of the claim window has passed (rule R5): most
// holds have ended by then and never pay for it, and time for two more tries is left, or over a slow network for one on a
// new connection.
func (l *lease) start(until time.Time, contended bool) {
	window := l.a.window
	claim := time.Now().Add(window / 3)
	if latest := until.Add(distributed.Drift(window) - 2*window/3); latest.Before(claim) { // the grant was under way for long
		claim = latest
	}
	if latest := until.Add(-l.a.s.network().claimTime(l.a.ttl)); latest.Before(claim) {
		claim = latest
	}
	l.a.node.keeper.Keep(&l.Lease, l, l.a.ttl, until, claim)
	l.SetContended(contended)
}

// renewed takes the answer to a renewal.
func (l *lease) renewed(r renewReply, sent time.Time) {
	if !r.held {
		l.gone()
		return
	}
	l.Renewed(distributed.Validity(sent, l.a.ttl)) // from when it was sent (rule R6)
	l.contention(r.contended, sent)
}

// contention takes what a reply says about others that wait (rule R8). A message that came since it was asked for is
// newer, or soon corrected by the next reply.
func (l *lease) contention(waits bool, sent time.Time) {
	if waits != l.Contended() && (waits || !l.a.noticedSince(sent)) { // a message cannot hide a waiter from a renewal
		l.SetContended(waits)
	}
}

// gone: the server says that the lease is another's, or nobody's (rule K1).
func (l *lease) gone() {
	l.End()
	l.a.attempts.forget(l.a)
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.next()
	if low && !l.a.node.background.add((*refillTask)(l), l.a.ttl, l.Until()) {
		l.fences.failed()
	}
	return fence, ok
}

// refillTask fetches more fences.
type refillTask lease

func (t *refillTask) call() *conn.Call                      { return t.a.wire.refill() }
func (t *refillTask) answered(c *conn.Call, sent time.Time) { _ = (*lease)(t).refilled(c, sent) }

// Refill implements distributed.Lease. It waits for a refill that is under way rather than ask again.
func (l *lease) Refill(ctx context.Context) error {
	if l.fences.isShared() {
		return nil
	}
	for wait := l.fences.refill(); wait != nil; wait = l.fences.refill() {
		select {
		case <-wait:
		case <-ctx.Done():
			return conn.Interrupted(ctx, l.a.wire.refill(), ctx.Err())
		}
		if l.fences.some() {
			return nil
		}
	}
	c := l.a.wire.refill()
	sent, err := l.a.s.ask(ctx, c, l.a.ttl, time.Until(l.Until()))
	if err != nil {
		l.fences.failed()
		return err
	}
	return l.refilled(c, sent)
}

// refilled takes the answer to a refill.
func (l *lease) refilled(c *conn.Call, sent time.Time) error {
	if c.Err != nil {
		l.fences.failed()
		return conn.Unavailable("refill", c.Err)
	}
	r := readRefill(c.Reply)
	if !r.held {
		l.fences.failed()
		l.gone()
		return distributed.ErrLeaseLost
	}
	l.a.wire.space.see(r.grant.fence + r.grant.count - 1)
	l.fences.add(r.grant.fence, r.grant.count)
	l.contention(r.grant.contended, sent)
	return nil
}

// The states of lease.change.
const (
	asGranted uint32 = iota
	changing         // it may be a shared lease by now
	changed          // it is one
)

// mode is Shared if the lease may be a shared one.
func (l *lease) mode() distributed.Mode {
	if l.change.Load() != asGranted {
		return distributed.Shared
	}
	return l.a.mode
}

// Downgrade implements distributed.Downgrader.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.a.mode == distributed.Shared {
		return nil
	}
	l.change.CompareAndSwap(asGranted, changing) // before it is sent: whatever becomes of it, renewals reckon with it
	c := l.a.wire.downgrade()
	sent, err := l.a.s.ask(ctx, c, l.a.ttl, time.Until(l.Until()))
	if err != nil {
		return err
	}
	r := readRefill(c.Reply)
	if !r.held {
		l.gone()
		return distributed.ErrLeaseLost
	}
	l.change.Store(changed)
	l.a.wire.space.see(r.grant.fence)
	l.fences.share(r.grant.fence)
	l.renewed(renewReply{held: true, contended: r.grant.contended}, sent)
	return nil
}

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	if !l.Finish() {
		return distributed.ErrLeaseLost
	}
	if !l.beginRelease() {
		return l.wait(ctx)
	}
	l.fences.close()
	c := l.a.wire.leave()
	if _, err := l.a.s.ask(ctx, c, l.a.ttl, time.Until(l.Until())); err != nil {
		l.releaseInBackground()
		return err
	}
	if l.leftToEnter(c) {
		return l.wait(ctx)
	}
	return l.settle(l.outcome(c))
}

// StartRelease implements distributed.AsyncLease.
func (l *lease) StartRelease() bool {
	if !l.Finish() {
		l.Released(distributed.ErrLeaseLost)
		return false
	}
	l.mu.Lock()
	l.watched = true
	l.mu.Unlock()
	if l.beginRelease() {
		l.releaseInBackground()
		return false
	}
	if l.in(released) { // before we set watched; else settle notifies
		l.notify()
	}
	return false
}

// beginRelease returns false if a release was begun before.
func (l *lease) beginRelease() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != held {
		return false
	}
	l.state = releasing
	return true
}

// releaseInBackground has the lease released by a task, which is repeated until the lease has expired anyway.
func (l *lease) releaseInBackground() {
	l.fences.close()
	if !l.a.node.background.add((*releaseTask)(l), l.a.ttl, l.Until()) {
		_ = l.settle(distributed.ErrClosed)
	}
}

// releaseTask releases a lease.
type releaseTask lease

func (t *releaseTask) call() *conn.Call {
	if !(*lease)(t).in(releasing) { // an Enter does it, or has done it
		return nil
	}
	return t.a.wire.leave()
}

func (t *releaseTask) patient() {}

func (t *releaseTask) answered(c *conn.Call, _ time.Time) {
	if l := (*lease)(t); !l.leftToEnter(c) {
		_ = l.settle(l.outcome(c))
	}
}

// adopt leaves the release to an Enter that names the lease as Prev.
func (l *lease) adopt() {
	l.fences.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.named = true
	if l.state != released {
		l.state = adopted
	}
}

// lastFence is a fence that the server has reserved for the lease, 0 for nil.
func (l *lease) lastFence() uint64 {
	if l == nil {
		return 0
	}
	return l.fences.last()
}

// enterFailed releases the lease after all: the Enter that adopted it has failed. It does nothing for nil.
func (l *lease) enterFailed() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.state == adopted {
		l.state = releasing
	}
	l.mu.Unlock()
	l.releaseInBackground()
}

// enterReplied notes that the Enter that adopted the lease has released it, or has found it lost. It does nothing
// for nil.
func (l *lease) enterReplied(lost bool) {
	switch {
	case l == nil:
	case lost:
		_ = l.settle(distributed.ErrLeaseLost)
	default:
		_ = l.settle(nil)
	}
}

// asPrev names the lease that enter is to release first. Nil is none.
func (l *lease) asPrev() any {
	if l == nil {
		return noPrev
	}
	return l.a.wire.prev(l.a.mode, l.first)
}

// leftToEnter reports that leave came after an Enter that has adopted the lease and whose reply, when it comes, says
// what became of it. If none comes, enterFailed asks again.
func (l *lease) leftToEnter(c *conn.Call) bool {
	return c.Err == nil && readLeave(c.Reply).later && l.in(adopted)
}

// outcome reads the answer to leave.
func (l *lease) outcome(c *conn.Call) error {
	if c.Err != nil {
		return conn.Unavailable("release", c.Err)
	}
	l.mu.Lock()
	named := l.named
	l.mu.Unlock()
	r := readLeave(c.Reply)
	if r.lost || r.later && c.Tries == 1 && !named { // else an earlier try or an Enter has released it
		return distributed.ErrLeaseLost
	}
	return nil
}

// settle ends the release with its first answer and returns that; later ones are of repeats.
func (l *lease) settle(err error) error {
	l.mu.Lock()
	if l.state == released {
		defer l.mu.Unlock()
		return l.err
	}
	l.state, l.err = released, err
	if l.done != nil {
		close(l.done)
	}
	l.mu.Unlock()
	l.a.attempts.forget(l.a)
	l.notify()
	return err
}

func (l *lease) in(s releaseState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}

// notify reports the answer to the Watcher, once.
func (l *lease) notify() {
	l.mu.Lock()
	watched, err := l.watched, l.err
	l.watched = false
	l.mu.Unlock()
	if watched {
		l.Released(err)
	}
}

// wait waits for a release that is under way.
func (l *lease) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.state == released {
		defer l.mu.Unlock()
		return l.err
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	done := l.done
	l.mu.Unlock()
	select {
	case <-done:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err
	case <-ctx.Done():
		return distributed.Unavailable("redis: release", ctx.Err())
	}
}
