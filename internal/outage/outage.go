// Package outage holds the two policies for the time while the backend is unreachable. Breaker, for FailClosed, makes
// calls fail fast. LocalOnly lets callers in without a lease.
//
//	judge      says what the answer to a call or a ping tells: the backend works, is away, or unknown
//	Breaker    counts failures, refuses Enter, lets probes through
//	LocalOnly  knows the current outage, grants degraded leases
//	pinger     pings while there is a reason to, for both
//
// Each policy is a Backend that wraps the real one. Stop ends it; Close is the real one's.
package outage

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Refused is the error of a call that was refused without asking the backend. It Is distributed.ErrUnavailable.
type Refused struct {
	RetryAfter time.Duration // until the backend is asked again
}

// Error implements error.
func (r *Refused) Error() string {
	return "backend is away, not asked: " + distributed.ErrUnavailable.Error()
}

// Unwrap returns distributed.ErrUnavailable.
func (r *Refused) Unwrap() error { return distributed.ErrUnavailable }

// verdict is what an answer says about the backend, as an error for gobreaker. nil: it works.
type verdict error

var (
	errAway    verdict = errors.New("away")
	errUnknown verdict = errors.New("unknown")
)

// judge says what the answer to an Enter or a Refill tells (rule O3). A call whose caller ran out of time tells nothing,
// because that time may have been short; see pinger.checkAfter.
func judge(ctx context.Context, err error) verdict {
	switch {
	case err == nil, errors.Is(err, distributed.ErrHeld):
		return nil
	case errors.Is(err, distributed.ErrUnavailable) && ctx.Err() == nil:
		return errAway
	}
	return errUnknown
}

// judgePing says the same of a ping, whose time is long enough to count. An error that a Ping may not return says
// nothing: what is wrong shows in Enter.
func judgePing(ctx context.Context, err error) verdict {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, distributed.ErrClosed):
		return errUnknown
	case errors.Is(err, distributed.ErrUnavailable), ctx.Err() != nil:
		return errAway
	}
	return errUnknown
}
