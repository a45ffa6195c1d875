package wllock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// hold is one caller inside: its turn, its use of a lease, and the context its function runs with, all in one
// allocation. It is never reused, because contexts and nested guards may refer to it long after its end.
//
// It ends in one of two ways, and tenure.End decides which: the function and all nested guards have returned (the last
// unpin), or the lease is lost (LeaseLost). The winner, and only the winner, passes the turn on.
type hold struct {
	holdContext
	call
	self     Held // what HeldFrom returns
	observer *report.Observer
	tenure   *tenure.Tenure       // the turn's baton, for use after the turn has gone
	limits   *deadline.Set[*hold] // of the Locker
	limit    deadline.Item[*hold] // when LockTimeMax has passed; in limits if it has an owner
	flight   outage.Flight        // the context of its Enters
	together *bundle              // the DoAll that acquires this lock with others; nil: none

	pins      atomic.Int32 // functions inside: the outer one and nested guards; 0: closed, and stays so
	lostLease atomic.Bool  // LeaseLost has been called
	// inquiry is set before the context ends, or the release returns; nil: nobody asks who broke the lock. A function that returns by
	// itself in the moment of the loss may read nil before it is set, and is not told.
	inquiry atomic.Pointer[report.Inquiry]
}

// shown is the full name as errors have it.
func (h *hold) shown() string { return h.observer.Redaction.Name(h.key) }

// err says what is wrong with the hold now.
func (h *hold) err() error {
	lost, overstayed := h.lost(), h.overstayed.Load()
	switch {
	case lost && overstayed:
		return report.Join(ErrLeaseLost, ErrLockTimeMax)
	case lost:
		return ErrLeaseLost
	case overstayed:
		return ErrLockTimeMax
	}
	return nil
}

// lost reports whether the lease has expired, by the clocks if nothing else has noticed (rule K2).
func (h *hold) lost() bool {
	return h.lostLease.Load() || distributed.Over(time.Now(), h.use.Lease().Until())
}

// lossError is the error of a hold whose lock was lost while its function ran.
func (h *hold) lossError() error { return h.error(h.lossReasons()) }

func (h *hold) lossReasons() []error {
	if h.overstayed.Load() {
		return []error{ErrLeaseLost, ErrLockTimeMax}
	}
	return []error{ErrLeaseLost}
}

func (h *hold) error(reasons []error) error {
	reason := reasons[0]
	if len(reasons) > 1 {
		reason = report.Join(reasons...)
	}
	return &Error{Op: "hold", Key: h.shown(), Tier: TierDistributed, Waited: h.localWait + h.distributedWait(),
		LocalWait: h.localWait, DistributedWait: h.distributedWait(), Ran: true, Err: reason, Broken: h.inquiry.Load().Broken()}
}

// context is the one that the function runs with.
func (h *hold) context() *holdContext {
	if h.together != nil {
		return &h.together.holdContext
	}
	return &h.holdContext
}

// outside is the context around the call, for what is not the function's business: reports and the release.
func (h *hold) outside() context.Context { return h.context().parent }

// stopped reports whether err, of the function, is the end of its context after LockTimeMax.
func (h *hold) stopped(err error) bool {
	ended := h.context().endedByHold()
	return ended != nil && errors.Is(context.Cause(ended), ErrLockTimeMax) &&
		(errors.Is(err, ended.Err()) || errors.Is(err, ErrLockTimeMax))
}

// explain joins the error of a hold with its function's. Each reason is in it once: the function may have returned the
// cause of its context, or the error of a nested guard of the same hold.
func (h *hold) explain(err error, reasons []error) error {
	var missing []error
	for _, r := range reasons {
		if !errors.Is(err, r) {
			missing = append(missing, r)
		}
	}
	e, explained := errors.AsType[*Error](err)
	switch {
	case explained && e.Ran && e.Key == h.shown() && len(missing) == 0:
		return err
	case explained && e.Ran && e.Key == h.shown():
		return report.Join(h.error(missing), err)
	case !explained && len(missing) < len(reasons):
		return h.error(append(missing, err))
	}
	return report.Join(h.error(reasons), err)
}

// pin keeps the hold open for a nested guard. It reports false if the hold is closed.
func (h *hold) pin() bool { // rule L6
	for {
		n := h.pins.Load()
		if n == 0 {
			return false
		}
		if h.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unpin ends one function's stay; the last one closes the hold. It returns false if the lease was lost before.
func (h *hold) unpin() bool {
	kept, pass := h.out()
	if pass {
		h.pass()
		h.observer.Left(&h.foreign)
	}
	return kept
}

// unpinAndWait is unpin that waits, until ctx ends, for the backend's answer to the release, if there is one. The answer
// may be that the lease was lost before.
func (h *hold) unpinAndWait(ctx context.Context) (kept bool, err error) { // rule T5
	kept, pass := h.out()
	if pass && passes(&h.turn, h.tenure) >= local.Kept {
		err = h.tenure.ReleaseAndWait(ctx, &h.turn)
	}
	if errors.Is(err, distributed.ErrLeaseLost) { // only the backend knew
		h.inquire()
		return false, nil
	}
	return kept, err
}

// unpinWithin is unpinAndWait that waits for d at most. A release without an answer has been logged; it is no failure of the
// function's.
func (h *hold) unpinWithin(d time.Duration) (kept bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.outside()), d)
	defer cancel()
	kept, _ = h.unpinAndWait(ctx)
	return kept
}

// out ends one function's stay. pass: it was the last, and the caller has to pass the turn on.
func (h *hold) out() (kept, pass bool) {
	if h.pins.Add(-1) > 0 {
		return !h.lost(), false
	}
	if h.together != nil {
		h.together.closeOne()
	} else {
		h.close()
	}
	if h.limit.Owner != nil {
		h.limits.Remove(&h.limit)
	}
	now := time.Now()
	if h.stay(now) {
		return true, false
	}
	in, kept := h.tenure.End(&h.use, now)
	if !in {
		return false, false // LeaseLost passes the turn on
	}
	h.ended(now, !kept)
	return kept, true
}

// pass passes the turn on, with what the tenure has at hand; if nobody waits, that goes back to the backend.
func (h *hold) pass() { passOn(&h.turn, h.tenure) }

// LeaseLost implements tenure.Owner: the context ends, and the turn passes to the next caller even if the function stays.
func (h *hold) LeaseLost() { // rule T6
	if h.tenure.Staying(&h.use) {
		h.stayLost()
		return
	}
	h.lostLease.Store(true)
	h.ended(time.Now(), true)
	if !h.observer.LostByOutage() {
		h.warn("lock lost while held")
		h.inquire()
	}
	h.endContext()
	h.pass()
}

// endContext ends the context of the functions inside. If they have left meanwhile, it may be that of a guard nested in another
// lock of the same DoAll, which is still held.
func (h *hold) endContext() {
	if h.pins.Load() > 0 {
		h.context().end(h.err())
	}
}

// Readmit implements tenure.Owner: sharers that found the lease draining may come in beside this one again.
func (h *hold) Readmit() { h.turn.Reopen() }

// Await implements tenure.Owner.
func (h *hold) Await(own bool) <-chan struct{} {
	if own {
		h.turn.Aside()
		return nil
	}
	return h.turn.Await()
}

// Alone implements tenure.Owner.
func (h *hold) Alone(ctx context.Context, deadline time.Time) error {
	return ofTenure(h.turn.Alone(ctx, deadline))
}

// Follow implements tenure.Owner.
func (h *hold) Follow(ctx context.Context, deadline time.Time) error {
	return ofTenure(h.turn.Follow(ctx, deadline))
}

// ofTenure makes an error of the turn one of the tenure's.
func ofTenure(err error) error {
	switch err {
	case local.ErrBehind:
		return tenure.ErrBehind
	case local.ErrTimeout:
		return tenure.ErrTimeout
	case local.ErrClosed:
		return tenure.ErrClosed
	default:
		return err
	}
}

// Awaited implements tenure.Owner.
func (h *hold) Awaited() { h.passCalled() }

// limitTo sets when the hold overstays.
func (h *hold) limitTo(at time.Time) {
	h.limit.Owner = h
	h.limits.Put(&h.limit, at)
}

// overstay is called when LockTimeMax has passed: the context ends, and the lease is abandoned.
func (h *hold) overstay() { // rule T6
	h.overstayed.Store(true)
	h.name.Overstays.Add(1)
	h.warn("lock held for longer than its maximum")
	h.endContext()
	h.tenure.Overstay(&h.use)
}
