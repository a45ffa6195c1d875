package hold

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/local"
)

// Leave ends one function's stay. The last one closes the hold, and passes the turn on. If the lease goes back to the backend then, Leave
// waits for the answer, for as long as wait says. A release without an answer has been logged, and is no failure of the function's.
// kept: the lock was held to the end. Else see Reasons.
func (h *Hold) Leave(wait time.Duration) (kept bool) {
	kept, passed := h.leave(wait)
	if passed {
		h.group.Observer.Left(&h.foreign)
	}
	return kept
}

// leave is Leave that does not wait for telemetry that is behind. passed: then that is to be done.
func (h *Hold) leave(wait time.Duration) (kept, passed bool) {
	if wait > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.outside()), wait)
		defer cancel()
		kept, _ = h.LeaveAndWait(ctx)
		return kept, false
	}
	kept, pass := h.out()
	if pass {
		h.pass()
	}
	return kept, pass
}

// LeaveAndWait is Leave that waits, until ctx ends, for the backend's answer, and returns what was wrong with that. The answer may be
// that the lease was lost before.
func (h *Hold) LeaveAndWait(ctx context.Context) (kept bool, err error) { // rule T5
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

// CloseAlone closes the hold if one function is inside, and no nested guard. GiveAway is next.
func (h *Hold) CloseAlone() bool { return h.pins.CompareAndSwap(1, 0) }

// GiveAway ends a hold whose lease does not go back to the backend but to another owner, by give. The turn is passed on after that: the next
// caller's Enter must not take the lease for its own (rule N5). Its context ends in any case.
func (h *Hold) GiveAway(give func(distributed.Lease) error) (err error) {
	defer func() { // also after a panic of the backend's
		if _, pass := h.closed(); pass {
			h.pass()
		}
	}()
	if err = give(h.use.Lease()); err == nil {
		h.detached.Store(true)
		h.End(ErrDetached)
		return nil
	}
	if errors.Is(err, distributed.ErrLeaseLost) {
		h.MarkLost()
		h.inquire()
	}
	h.End(err)
	return err
}

// Reasons are what was wrong with a hold that a function has left, with its error. nil: nothing was. After LockTimeMax the error of a
// function that its context has stopped is to tell of that.
func (h *Hold) Reasons(kept bool, err error) []error { // rule T7
	overstayed := h.overstayed.Load()
	switch {
	case !kept && overstayed:
		return []error{h.loss(), ErrLockTimeMax}
	case !kept:
		return []error{h.loss()}
	case overstayed && err != nil && h.stopped(err):
		return []error{ErrLockTimeMax}
	}
	return nil
}

// stopped reports whether err, of the function, is the end of its context after LockTimeMax.
func (h *Hold) stopped(err error) bool {
	ended, cause := h.Ended()
	return ended != nil && errors.Is(cause, ErrLockTimeMax) && (errors.Is(err, ended) || errors.Is(err, ErrLockTimeMax))
}

// out ends one function's stay. pass: it was the last, and the caller has to pass the turn on.
func (h *Hold) out() (kept, pass bool) {
	if h.pins.Add(-1) > 0 {
		return !h.Lost(), false
	}
	return h.closed()
}

// closed is out for a hold that has no function inside any more.
func (h *Hold) closed() (kept, pass bool) {
	if h.together != nil {
		h.together.closeOne()
	} else {
		h.close()
	}
	if h.limit.Owner != nil {
		h.group.limits.Remove(&h.limit)
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
func (h *Hold) pass() { passOn(&h.turn, h.tenure) }
