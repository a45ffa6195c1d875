package wllock

import (
	"errors"
	"math"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Permits acquires one of n permits instead of the lock. Up to n callers hold one at a time over all instances, first come first
// served, each with a lease and a fence of its own. Use it for resources with a fixed capacity, such as a partner's API.
//
//	err := locker.Do(ctx, "partner", "acme", call, wllock.Permits(8))
//
// A permit is granted when no caller is queued before and fewer than n are held. That counts all permits, whatever n they were
// asked with, and readers (Shared), which count once per instance. The first in the queue holds up all behind it. If n is lowered,
// no caller is admitted before fewer are held, and no holder is stopped. Give all callers the same n, best with WithName. While they
// differ, as many are held as the largest n allows.
//
// A call for the same key without Permits (with Exclusive, if WithName says Permits) waits until all permits are released, and permits
// asked for after it, by any instance, wait for it. This is a way to drain. Other instances may first finish their tenure
// (WithMaxTenure).
//
// All else is as for a lock. A permit is renewed while the function runs, expires alone if the process dies, is passed on within the
// process, and is kept by WithHoldAtLeast. Fences of permits that are held at the same time are not ordered, so a store cannot refuse
// the smaller one. A fence is above those of all permits that ended before its own was granted, and that of an exclusive holder is
// above all permits before it.
//
// Inside a permit, permits and readers of the same key run at once, and an exclusive call is ErrUpgrade, as Permits is inside Shared.
// Shared, a batch guard, DoAll and Lead with Permits are errors of the call. Over redlock a call is refused with ErrUnavailable,
// because votes cannot count. With LocalOnly, n callers are admitted in each process while the backend is away: choose FailClosed if
// n is a strict limit.
//
// To the backend each permit of a process is an instance, such as host-4k2p#3, which Locker.Inspect shows. LockInfo has the limit
// and how many this process holds.
func Permits(n int) CallOption {
	return func(c callOptions) callOptions {
		if n < 1 {
			return c.wrong("Permits(%d): want 1 or more", n)
		}
		c.permits = int32(min(n, math.MaxInt32))
		return c
	}
}

// Exclusive requests the lock for one caller at a time, which is the default: for names whose WithName says Permits or Shared, to drain
// or to write. Of Exclusive and either of these, the last one wins.
func Exclusive() CallOption {
	return func(c callOptions) callOptions {
		c.mode, c.permits = distributed.Exclusive, 0
		return c
	}
}

var (
	errSharedPermits = errors.New("wllock: Permits with Shared: want one of them")
	errPermitLead    = errors.New("wllock: Lead with Permits: want an exclusive lock")
	errPermitBatch   = errors.New("wllock: a batch guard is exclusive: it cannot have Permits")
	errPermitAll     = errors.New("wllock: DoAll with Permits: its locks are exclusive or shared")
)

// permitConflict returns what is wrong with Permits together with other options.
func (c *callOptions) permitConflict() error { // rule P5
	switch {
	case c.mode == distributed.Shared:
		return errSharedPermits
	case c.leads:
		return errPermitLead
	}
	return nil
}

type turn = local.Turn[*tenure.Tenure]

// passes passes a turn on. A permit's lease that may serve one more caller goes to the fellow that has waited longest at the
// backend, who came before those in line; one that may not goes to the first in line, who asks the backend anew with it
// (rule P2). It is out of the tenure's users by now.
func passes(t *turn, of *tenure.Tenure) local.Outcome {
	if t.Permits() > 0 && of.Fit(time.Now()) && t.Offer() {
		return local.Passed
	}
	return t.Pass()
}

// passOn passes a turn on, with what its tenure has at hand. If nobody can use that, it goes back to the backend.
func passOn(t *turn, of *tenure.Tenure) {
	switch passes(t, of) {
	case local.Kept:
		of.Release(t) // rule T5
	case local.Barred:
		of.Yield(t)
	}
}

// passCalled is for a caller that waits for a permit no longer. If a fellow has passed it a lane meanwhile, that goes on to the
// next: the caller has a lease of its own, or has given up.
func (h *hold) passCalled() {
	if !h.turn.Called() {
		return
	}
	var own turn
	h.turn.Trade(&own)
	h.turn.Swap(&own) // own is the fellow's lane now
	passOn(&own, own.Baton())
}

// join takes the lane that a fellow has passed to the caller, and passes on its own one, with its place at the backend, to the next. If
// the fellow's lease does not serve it after all, the caller keeps its own place, and passes on the fellow's lane, which
// nobody who waits at the backend is offered again.
//
// The turns change before the caller is let in: from then on LeaseLost may pass on h.turn, on another goroutine.
func (h *hold) join(ask tenure.Ask) bool { // rule P2
	if !h.turn.Called() {
		return false // never: only a fellow calls
	}
	own, mine := new(turn), h.tenure
	h.turn.Trade(own)
	h.tenure = h.turn.Baton()
	if h.tenure.Join(&h.use, ask) {
		giveUp(own, mine)
		return true
	}
	h.turn.Swap(own)
	theirs := h.tenure
	h.tenure = mine
	giveUp(own, theirs)
	return false
}

// giveUp passes on a lane that has no lease to offer.
func giveUp(t *turn, of *tenure.Tenure) {
	switch t.Pass() {
	case local.Kept:
		of.Release(t)
	case local.Barred:
		of.Yield(t)
	}
}
