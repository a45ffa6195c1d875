package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// lease is a grant in use. Its life is kept by the Term; what is here is its fences and its release.
type lease struct {
	keepalive.Lease
	a      *attempt
	first  uint64 // the fence in the lock's value
	fences fences

	named   atomic.Bool // an Enter has named the lease as Prev, and may have given it up
	adopted atomic.Bool // and that is under way, or has: what waits to release it need not be sent

	mu    sync.Mutex    // guards what follows
	begun bool          // a release
	ended bool          // it is answered
	err   error         // of the release; valid once it is answered
	done  chan struct{} // closed then; made when somebody waits
	tell  bool          // StartRelease was called: the answer goes to the Watcher
}

// newLease makes the lease of a grant; start lets its time run. The caller holds a.mu.
func newLease(a *attempt, g grant) *lease {
	l := &lease{a: a, first: g.fence}
	l.fences.open(g.fence, g.count, a.mode == distributed.Shared)
	a.b.see(g.fence + g.count - 1)
	a.lease = l
	return l
}

// start has the lease kept. It is claimed after a third of the claim window, in the background: most holds are over
// by then and never pay for it, and two tries are left.
func (l *lease) start(until time.Time, wanted bool) {
	window := distributed.ClaimWindow(l.a.ttl)
	l.a.node.keeper.Keep(&l.Lease, l, l.a.ttl, until, time.Now().Add(window/3))
	if wanted {
		l.SetContended()
	}
}

// NextFence implements distributed.Lease. More are fetched in the background when half are used.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, low := l.fences.next()
	if low && !l.a.node.errands.add((*refill)(l), l.a.ttl, l.Until()) {
		l.fences.failed()
	}
	return fence, ok
}

// refill is the errand of fetching more fences.
type refill lease

func (r *refill) make() *call                   { return (*lease)(r).refilling() }
func (r *refill) answered(c *call, _ time.Time) { _ = (*lease)(r).refilled(c) }

// Refill implements distributed.Lease. It waits for one that is under way rather than ask again.
func (l *lease) Refill(ctx context.Context) error {
	if l.fences.shared {
		return nil
	}
	for wait := l.fences.refill(); wait != nil; wait = l.fences.refill() {
		select {
		case <-wait:
		case <-ctx.Done():
			return interrupted(ctx, l.refilling(), ctx.Err())
		}
		if l.fences.some() {
			return nil
		}
	}
	c := l.refilling()
	if _, err := l.a.b.ask(ctx, c, l.a.ttl, time.Until(l.Until())); err != nil {
		l.fences.failed()
		return err
	}
	return l.refilled(c)
}

func (l *lease) refilling() *call {
	c := l.a.call(refillScript)
	c.wire[settingsAt] = l.a.b.termsOf(l.a.ttl).refill
	return c
}

// refilled takes the answer to a refill.
func (l *lease) refilled(c *call) error {
	if c.err != nil {
		l.fences.failed()
		return unavailable("refill", c.err)
	}
	if c.word(0) != "fences" {
		l.fences.failed()
		l.End()
		l.a.b.forget(l.a)
		return distributed.ErrLeaseLost
	}
	first, count := parseFence(c.word(1)), uint64(c.number(2))
	l.a.b.see(first + count - 1)
	l.fences.add(first, count)
	if c.number(3) == 1 {
		l.SetContended()
	}
	return nil
}

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	if !l.Finish() {
		return distributed.ErrLeaseLost
	}
	if !l.begin() {
		return l.wait(ctx)
	}
	l.fences.close()
	c := l.a.leaving()
	if _, err := l.a.b.ask(ctx, c, l.a.ttl, time.Until(l.Until())); err != nil {
		l.background()
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
	l.tell = true
	l.mu.Unlock()
	if l.begin() {
		l.background()
		return false
	}
	if l.settled() { // before we asked to be told; else settle tells
		l.told()
	}
	return false
}

// begin starts a release. It returns false if one was started before.
func (l *lease) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun {
		return false
	}
	l.begun = true
	return true
}

// background has the lease released by an errand, which is repeated until the lease is over anyway.
func (l *lease) background() {
	l.fences.close()
	if !l.a.node.errands.add((*releasing)(l), l.a.ttl, l.Until()) {
		_ = l.settle(distributed.ErrClosed)
	}
}

// releasing is the errand of giving a lease back.
type releasing lease

func (r *releasing) make() *call {
	l := (*lease)(r)
	if l.adopted.Load() || l.settled() {
		return nil
	}
	return l.a.leaving()
}

func (r *releasing) answered(c *call, _ time.Time) {
	if l := (*lease)(r); !l.leftToEnter(c) {
		_ = l.settle(l.outcome(c))
	}
}

// giveUp releases the lease that an Enter named as Prev, when that Enter has failed. Of nil it does nothing.
func (l *lease) giveUp() {
	if l != nil {
		l.adopted.Store(false)
		l.background()
	}
}

// givenUp notes that an Enter has released the lease, or has found it lost. Of nil it does nothing.
func (l *lease) givenUp(lost bool) {
	switch {
	case l == nil:
	case lost:
		_ = l.settle(distributed.ErrLeaseLost)
	default:
		_ = l.settle(nil)
	}
}

// asPrev is how enter is told which lease to give up: ARGV 8. Nil is none.
func (l *lease) asPrev() any {
	switch {
	case l == nil:
		return "wllock:none:"
	case l.a.mode == distributed.Shared:
		return prefix + "s:" + strings.TrimPrefix(*l.a.token, prefix+"x:")
	default:
		var digits [20]byte
		return *l.a.token + string(appendFence(digits[:0], l.first))
	}
}

// leftToEnter reports that leave came after an Enter that names the lease as Prev and whose answer, when it comes, says
// what became of it. If none comes, giveUp asks again.
func (l *lease) leftToEnter(c *call) bool {
	return c.err == nil && c.word(0) == "over" && l.adopted.Load()
}

// outcome reads the answer to leave.
func (l *lease) outcome(c *call) error {
	switch {
	case c.err != nil:
		return unavailable("release", c.err)
	case c.word(0) == "lost",
		c.word(0) == "over" && c.tries == 1 && !l.named.Load(): // else it was given up by an earlier try, or an Enter
		return distributed.ErrLeaseLost
	default:
		return nil
	}
}

// settle ends the release with its first answer and returns that; later ones are of repeats.
func (l *lease) settle(err error) error {
	l.mu.Lock()
	if l.ended {
		defer l.mu.Unlock()
		return l.err
	}
	l.ended, l.err = true, err
	if l.done != nil {
		close(l.done)
	}
	l.mu.Unlock()
	l.a.b.forget(l.a)
	l.told()
	return err
}

// settled reports that the release under way has been answered, by an Enter that named the lease as Prev.
func (l *lease) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// told tells the Watcher, once.
func (l *lease) told() {
	l.mu.Lock()
	tell, err := l.tell, l.err
	l.tell = false
	l.mu.Unlock()
	if tell {
		l.Released(err)
	}
}

// wait waits for a release that is under way.
func (l *lease) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.ended {
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
		return fmt.Errorf("redislock: release: %w: %w", distributed.ErrUnavailable, ctx.Err())
	}
}

func ignoreLost(err error) error {
	if errors.Is(err, distributed.ErrLeaseLost) {
		return nil
	}
	return err
}
