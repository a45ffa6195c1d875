package wllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Reasons why a lock was not acquired, or was lost. Match them with errors.Is. They come wrapped in *Error.
var (
	// ErrQueueFull: as many callers wait for the key in this process as its threshold allows, as many instances wait as WithFleetThreshold
	// allows, or WithShedHopeless refused the call.
	ErrQueueFull = local.ErrQueueFull
	// ErrWaitTimeout: the wait allowed by WithWait has passed. It Is context.DeadlineExceeded, too. If the caller's own context ended first, the
	// error is that context's instead. Either error Is also ErrUnavailable if the backend did not answer this caller, or those before it in the
	// queue.
	ErrWaitTimeout error = waitTimeout{}
	// ErrHeld: NoWait was given, and another caller or instance has the lock.
	ErrHeld = distributed.ErrHeld
	// ErrUpgrade: an exclusive lock was requested inside the caller's own shared lock or permit, or a permit inside its own shared lock. The
	// caller could only wait for itself.
	ErrUpgrade = errors.New("exclusive lock requested inside the caller's own shared lock")
	// ErrLockOrder: DoAll was called inside a lock, and requested a lock that comes before that one in the common order. It might wait forever.
	ErrLockOrder = errors.New("lock requested inside one that comes later in the common order")
	// ErrLeaseLost: the lock was lost while it was held. It is also the cause with which the function's context ends.
	ErrLeaseLost = distributed.ErrLeaseLost
	// ErrLockTimeMax: the function held the lock for longer than WithLockTimeMax. It is also the cause with which its context ends.
	ErrLockTimeMax = hold.ErrLockTimeMax
	// ErrUnavailable: the backend could not be reached, or refused the request. Its own error is wrapped beside this one.
	ErrUnavailable = distributed.ErrUnavailable
	// ErrInvalidKey: the system, name or key is invalid. It is refused before any queue or network, or by the backend, which may be stricter.
	ErrInvalidKey = distributed.ErrInvalidKey
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("locker is closed")
)

// waitTimeout is the type of ErrWaitTimeout.
type waitTimeout struct{}

func (waitTimeout) Error() string        { return "timed out waiting for the lock" }
func (waitTimeout) Is(target error) bool { return target == context.DeadlineExceeded }
func (waitTimeout) Timeout() bool        { return true }

// fleetFull is the error of a caller that WithFleetThreshold refuses.
type fleetFull struct{}

func (fleetFull) Error() string {
	return "as many instances wait for the lock as WithFleetThreshold allows"
}
func (fleetFull) Is(target error) bool { return target == ErrQueueFull }

var errFleetFull error = fleetFull{}

// Tier is one of the two tiers: this process's queue, or the backend.
type Tier string

const (
	TierLocal       Tier = "local"       // the queue inside this process
	TierDistributed Tier = "distributed" // the backend
)

// Error says why a lock was not acquired or was lost, with what the caller needs to react. Get it with errors.As.
type Error struct {
	Op              string        // "acquire", "hold", "batch", "release", "detach" or "adopt"
	Key             string        // system:name:key, raw unless WithKeyRedaction was given. The methods Error and LogValue quote and cut it
	Tier            Tier          // in which it failed
	Waited          time.Duration // time spent waiting, in both tiers together
	LocalWait       time.Duration // part of Waited in the local queue
	DistributedWait time.Duration // part of Waited at the backend
	RetryAfter      time.Duration // estimate of when another try may succeed, 0 if never or not known
	Ran             bool          // the function was entered: a repeat may do the work twice
	Holder          string        // the Locker.Instance that holds the lock, or one of the readers and how many more. Set with ErrHeld, ErrWaitTimeout, ErrQueueFull and the caller's own deadline. "a detached lock" if no instance holds it. "" if not known
	Err             error         // one of the errors above, possibly joined with others

	Broken *distributed.Breaking // with ErrLeaseLost: the author of the break that ended the lease, and the reason. nil if it was not broken, or not known
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "wllock: %s %s: %v", e.Op, nametext.Quote(e.Key), e.Err)
	if !e.Ran {
		fmt.Fprintf(&b, " (%s tier, waited %v", e.Tier, e.Waited.Round(time.Microsecond))
		if e.Holder != "" {
			b.WriteString(", held by " + nametext.Quote(e.Holder)) // quoted: it comes from the backend
		}
		b.WriteByte(')')
	}
	if e.Broken != nil {
		b.WriteString(": broken by " + nametext.Quote(e.Broken.By) + ": " + nametext.Quote(e.Broken.Reason))
	}
	return b.String()
}

// Unwrap returns Err, so that errors.Is and errors.As find it.
func (e *Error) Unwrap() error { return e.Err }

// LogValue implements slog.LogValuer.
func (e *Error) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("op", e.Op), slog.String("key", nametext.Quote(e.Key)), slog.String("tier", string(e.Tier)),
		slog.Duration("waited", e.Waited), slog.Bool("ran", e.Ran), slog.String("error", e.Err.Error()),
	}
	if e.Holder != "" {
		attrs = append(attrs, slog.String("holder", nametext.Quote(e.Holder)))
	}
	if e.Broken != nil {
		attrs = append(attrs, slog.String("broken_by", nametext.Quote(e.Broken.By)), slog.String("reason", nametext.Quote(e.Broken.Reason)))
	}
	return slog.GroupValue(attrs...)
}

// public is the function of this name for an error that holds no key, if keys are redacted. What a caller has ended its context with is its own.
func (l *Locker) public(ctx context.Context, err error) error {
	return public(ctx, l.observer.Redaction.Error(err))
}

// public translates the errors of the tiers into those of this package. A context's error gets its cause beside it.
func public(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrQueueFull): // first, since load is shed when there is much of it
		return err
	case errors.Is(err, tenure.ErrFull):
		return errFleetFull
	case errors.Is(err, local.ErrBusy):
		return ErrHeld
	case errors.Is(err, local.ErrTimeout), errors.Is(err, tenure.ErrTimeout):
		if errors.Is(err, ErrUnavailable) {
			return fmt.Errorf("%w: %w", ErrWaitTimeout, err)
		}
		return ErrWaitTimeout
	case errors.Is(err, local.ErrClosed), errors.Is(err, tenure.ErrClosed):
		return ErrClosed
	case errors.Is(err, distributed.ErrClosed):
		return report.Join(ErrUnavailable, err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		if !errors.Is(err, ErrUnavailable) {
			err = ctx.Err()
		}
		if cause := context.Cause(ctx); cause != ctx.Err() {
			return report.Join(err, cause)
		}
		return err
	case isOurs(err), errors.Is(err, ErrInvalidKey):
		return err
	}
	return report.Join(ErrUnavailable, err) // an error beyond the backend's contract
}

func isOurs(err error) bool {
	return errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLeaseLost)
}

// outcomes stand in the order in which an error is compared with them, the most telling first: a wait that timed out at an
// unreachable backend is both.
var outcomes = [...]struct {
	err error
	is  report.Outcome
}{
	{ErrQueueFull, report.QueueFull}, {ErrUnavailable, report.Unavailable}, {ErrWaitTimeout, report.TimedOut}, {ErrHeld, report.Busy},
	{ErrClosed, report.Closed}, {ErrLeaseLost, report.LeaseLost},
	{context.DeadlineExceeded, report.PastDeadline}, {context.Canceled, report.Canceled},
}

func outcomeOf(err error) report.Outcome {
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.is
		}
	}
	return report.Other
}

// left returns the error of a function that has left a hold, with what was wrong with that (rule T7).
func left(h *hold.Hold, kept bool, err error) error { return explain(h, h.Reasons(kept, err), err) }

// explain joins the error of a hold with its function's. Each reason is in it once: the function may have returned the
// cause of its context, or the error of a nested guard of the same hold, also of one that the loss kept out. Without reasons it is the function's.
func explain(h *hold.Hold, reasons []error, err error) error {
	if len(reasons) == 0 {
		return err
	}
	var missing []error
	for _, r := range reasons {
		if !errors.Is(err, r) {
			missing = append(missing, r)
		}
	}
	shown := h.Shown()
	e, explained := errors.AsType[*Error](err)
	same := explained && e.Key == shown
	switch {
	case same && e.Ran && len(missing) == 0:
		return err
	case same && e.Ran:
		return report.Join(holdError(h, shown, missing), err)
	case same && err == error(e) && len(missing) == 0: // a nested call that was refused because the lock was lost
		return holdError(h, shown, reasons)
	case !explained && len(missing) < len(reasons):
		return holdError(h, shown, append(missing, err))
	}
	return report.Join(holdError(h, shown, reasons), err)
}

func holdError(h *hold.Hold, shown string, reasons []error) error {
	return &Error{Op: "hold", Key: shown, Tier: TierDistributed, Waited: h.LocalWait() + h.DistributedWait(),
		LocalWait: h.LocalWait(), DistributedWait: h.DistributedWait(), Ran: true, Err: report.Join(reasons...), Broken: h.Broken()}
}
