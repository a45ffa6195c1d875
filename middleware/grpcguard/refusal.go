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

// answers are searched in order: the error of an unavailable backend may also be that of a context.
var answers = []answer{ // rule H2
	{wllock.ErrLeaseLost, codes.Aborted, "LOCK_LOST", "the lock was lost during the call, which may have been processed in part", false},
	{wllock.ErrLockTimeMax, codes.Aborted, "LOCK_LOST", "the call took longer than allowed and may have been processed in part", false},
	{errIdle, codes.Aborted, "LOCK_LOST", "no message came for too long, and the call may have been processed in part", false},
	{wllock.ErrQueueFull, codes.ResourceExhausted, "LOCK_QUEUE_FULL", "too many callers wait for the lock", true},
	{wllock.ErrUnavailable, codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", "the lock service does not respond", true},
	{wllock.ErrWaitTimeout, codes.ResourceExhausted, "LOCK_WAIT_TIMEOUT", "timed out waiting for the lock", true},
	{wllock.ErrHeld, codes.Aborted, "LOCK_HELD", "the lock is held by another caller", true},
	{wllock.ErrInvalidKey, codes.InvalidArgument, "LOCK_INVALID_KEY", "the key of the lock is missing or malformed", false},
	{wllock.ErrClosed, codes.Unavailable, "LOCK_CLOSED", "the locks of this process are closed", true},
}

// cut is for a call that was admitted and lost its lock for another reason: the Locker closes. Code and reason are not
// those of a call that may be retried elsewhere, for clients that ignore the pushback.
var cut = answer{code: codes.Aborted, reason: "LOCK_LOST", message: "the lock was taken away during the call, which may have been processed in part"}

// refuse returns what a caller gets for an error of the lock, or nil without one.
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
		return rpcstatus.Plain(codes.DeadlineExceeded, "the deadline expired before the lock was acquired", err)
	case errors.Is(err, context.Canceled):
		return rpcstatus.Plain(codes.Canceled, "canceled before the lock was acquired", err)
	}
	return rpcstatus.New(codes.Internal, "LOCK_INTERNAL", "the lock could not be requested", rpcstatus.Never, err)
}

// Refuse turns the error of a Locker that a handler calls itself into the status that an interceptor of this package would return, with its
// pushback. ctx is the handler's. Refuse returns nil, and errors that are not of a lock, unchanged. So a handler may return Refuse(ctx,
// locker.Do(ctx, ...)).
func Refuse(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*wllock.Error](err); !ok {
		return err
	}
	return sent(ctx, refuse(err))
}

// entered reports whether err came after the call was admitted. That may have been by an outer guard: an inner guard waits
// with its context, which ends with ErrClosed as the cause.
func entered(err error) bool {
	e, ok := errors.AsType[*wllock.Error](err)
	return ok && (e.Ran || errors.Is(err, wllock.ErrClosed) && errors.Is(err, context.Canceled))
}

// delay returns when to retry.
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
