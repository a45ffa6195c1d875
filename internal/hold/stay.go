package hold

import (
	"log/slog"
	"time"
)

// LimitBy sets when a hold overstays that has just begun.
func (h *Hold) LimitBy(at time.Time) {
	h.limitTo(at)
	if h.use.Least() > 0 && !at.After(h.use.Stays()) {
		h.use.Lease().Abandon() // it lasts for as long without a renewal, and frees the lock in time if this process dies (rule N2)
	}
}

// limitTo sets when the hold overstays.
func (h *Hold) limitTo(at time.Time) {
	h.limit.Owner = h
	h.group.limits.Put(&h.limit, at)
}

// overstay is called when LockTimeMax has passed: the context ends, and the lease is abandoned.
func (h *Hold) overstay() { // rule T6
	h.overstayed.Store(true)
	h.name.Overstays.Add(1)
	h.endContext()
	h.tenure.Overstay(&h.use)
	h.warn("lock held for longer than its maximum")
}

// CutStay has the hold end with its functions, however long it was to stay. It is for those inside.
func (h *Hold) CutStay() { h.cut.Store(true) }

// stay reports that the lock stays taken although its function has returned: the hold ends when the time has come, or with its lease.
func (h *Hold) stay(now time.Time) bool { // rule N2
	if h.Least() == 0 || h.together != nil && h.together.innermost.Load() == nil { // a DoAll that has failed, whose function has not run
		return false
	}
	h.limitTo(h.use.Stays()) // before Stay: from then on LeaseLost may come, and takes it back
	if !h.tenure.Stay(&h.use, now) {
		h.group.limits.Remove(&h.limit)
		return false
	}
	if h.tenure.Closed() || !time.Now().Before(h.use.Stays()) { // Close or the timer may have looked for us before
		h.EndStay()
	}
	return true
}

// due is called by the timer. It may come late, as the last function returns: then the hold has not overstayed, and out sees to the rest.
func (h *Hold) due() {
	switch {
	case h.pins.Load() > 0:
		h.overstay()
	case h.tenure.Staying(&h.use) && !time.Now().Before(h.use.Stays()):
		h.EndStay()
	}
}

// EndStay ends a hold that stayed. The timer and Close may both come here, and LeaseLost may be first: End has one winner.
func (h *Hold) EndStay() { // rule N3
	now := time.Now()
	if in, _ := h.tenure.End(&h.use, now); in {
		h.ended(now, false)
		h.pass()
	}
}

// stayLost is LeaseLost for a hold that stayed: its function has returned, and its caller is told nothing any more.
func (h *Hold) stayLost() {
	h.group.limits.Remove(&h.limit)
	now := time.Now()
	h.ended(now, false)
	h.group.Observer.Warn(h.outside(), "lock lost after its function has returned, and before WithHoldAtLeast has passed: others may run it again",
		h.name, h.key, slog.Uint64("fence", h.use.Fence()), slog.Duration("held", now.Sub(h.use.Began())))
	h.pass()
}
