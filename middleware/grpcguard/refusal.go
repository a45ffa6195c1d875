package grpcguard

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/grpcguard/internal/rpcstatus"
)

type refusal = rpcstatus.Refusal

// answer is a row of the table: what callers get for an error.
type answer struct {
	err     error
	code    codes.Code
	reason  string
	message string
	retry   bool
}

// answers are looked through in their order: an unavailable backend may have brought a context's error along.
var answers = []answer{
	{wllock.ErrLeaseLost, codes.Aborted, "LOCK_LOST", "the lock was lost during the call, which may have done its work in part", false},
	{wllock.ErrLockTimeMax, codes.Aborted, "LOCK_LOST", "the call took longer than it may, and may have done its work in part", false},
	{wllock.ErrQueueFull, codes.ResourceExhausted, "LOCK_QUEUE_FULL", "too many wait for the lock", true},
	{wllock.ErrUnavailable, codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", "the lock service does not answer", true},
	{wllock.ErrWaitTimeout, codes.ResourceExhausted, "LOCK_WAIT_TIMEOUT", "waited for the lock for as long as allowed", true},
	{wllock.ErrHeld, codes.Aborted, "LOCK_HELD", "somebody else has the lock", true},
	{wllock.ErrInvalidKey, codes.InvalidArgument, "LOCK_INVALID_KEY", "the key of the lock is missing or malformed", false},
	{wllock.ErrClosed, codes.Unavailable, "LOCK_CLOSED", "the locks of this process are closed", true},
}

// cut is for a call that had been let in when the lock was taken from it for any other reason: the Locker closes. The
// code and the reason are not those of a call that may be made elsewhere, for clients that do not look at the pushback.
var cut = answer{code: codes.Aborted, reason: "LOCK_LOST", message: "the lock was taken away during the call, which may have done its work in part"}

// refuse makes what a caller gets for an error of the lock. nil: there was none.
func refuse(err error) *refusal {
	if err == nil {
		return nil
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			if a.retry && entered(err) {
				a = cut
			}
			return rpcstatus.New(a.code, a.reason, a.message, a.delay(err), err)
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return rpcstatus.Plain(codes.DeadlineExceeded, "the deadline was over before the lock was had", err)
	case errors.Is(err, context.Canceled):
		return rpcstatus.Plain(codes.Canceled, "cancelled before the lock was had", err)
	}
	return rpcstatus.New(codes.Internal, "LOCK_INTERNAL", "the lock could not be asked for", rpcstatus.Never, err)
}

// entered reports that err came after the call was let in. A guard further out may have done that: its context is what
// a guard inside it waits with, and ends with ErrClosed as the cause.
func entered(err error) bool {
	e, ok := errors.AsType[*wllock.Error](err)
	return ok && (e.Ran || errors.Is(err, wllock.ErrClosed) && errors.Is(err, context.Canceled))
}

// delay is when to try again.
func (a *answer) delay(err error) time.Duration {
	if !a.retry {
		return rpcstatus.Never
	}
	var after time.Duration
	if e, ok := errors.AsType[*wllock.Error](err); ok {
		after = e.RetryAfter
	}
	return rpcstatus.Jitter(after)
}
