package wllock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// ran is for the end of a job: the function of a Lead, or of a call WithHoldAtLeast. The backend notes how it has ended. No caller waits for
// that, and the backend keeps the order of fences.
func (e entered) ran(err error, returned bool) {
	if e.job == nil {
		return
	}
	if e.onError && (err != nil || !returned) {
		e.hold.CutStay()
	}
	h := e.hold
	run := distributed.Run{
		Key: h.Key(), Instance: e.job.instance, Began: h.Began(), Took: time.Since(h.Began()), Result: distributed.RunOK, Fence: h.Fence(),
	}
	lost := h.Lost()
	if d := h.Least(); d > 0 && !lost {
		run.Until = run.Began.Add(d)
	}
	switch {
	case !returned:
		run.Result = "panic"
	case lost:
		run.Result = "lock lost"
	case err == nil:
	case errors.Is(err, ErrLockTimeMax):
		run.Result = "held for too long"
	case errors.Is(err, context.Canceled):
		run.Result = "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		run.Result = "timed out"
	default:
		run.Result = "error"
	}
	h.Ran(run)
}
