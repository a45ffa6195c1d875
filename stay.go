package wllock

import (
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
)

// WithHoldAtLeast keeps the lock taken for at least d from its acquisition (default 0: until the function has returned). So a job that several
// processes start at about the same time, by their clocks, runs once:
//
//	locker.Do(ctx, "cron", "report", job, wllock.NoWait(), wllock.WithHoldAtLeast(30*time.Second)) // every minute, everywhere
//
// Choose d longer than the difference between the clocks, and shorter than the time between two ticks. The maximum is 366 days. Do returns as
// soon as the function has, with its error, and so does Lock.Release. But no caller gets the lock before d has passed, not even one of the same
// Locker, whatever the function returned. That also holds if the process is killed meanwhile. Then the lock stays taken for d plus at most T/6,
// 2% and some ms, and never for less than T/2, if WithLockTimeMax is at most d. If the function may run for longer, its lease is renewed, and
// may last for 2d and T/3 from its last renewal. So may any lease on etcd and ZooKeeper.
//
// The lease is chosen to last for d without a renewal. A backend that does not grant one that long refuses the call with ErrUnavailable. Held,
// LockInfo and Stats count the lock as held until d has passed. Other callers wait, or get ErrHeld or ErrWaitTimeout, as while the function
// runs. If the backend loses the lock after the function has returned, a warning is logged.
//
// Close does not wait for d: the lock stays taken at the backend and expires there. SyncRelease does not wait either, as long as d has not
// passed. A DoAll keeps each of its keys taken from the acquisition of that key, and renews the leases of the earlier keys while it waits for
// the later ones. If it fails, they are released at once. With LocalOnly, such a call is not admitted without a lease, because each process
// would run the job: it gets ErrUnavailable. A guard nested in a hold of the same key counts from the start of that hold. If that hold asked for
// less, the guard is refused at once. With Shared the call returns an error.
//
// A job that has failed need not keep the lock for the rest of d: see [ReleaseOnError] and [Lock.ReleaseEarly].
func WithHoldAtLeast(d time.Duration) CallOption {
	return func(c callOptions) callOptions {
		if d < 0 || d > maxHoldAtLeast {
			return c.wrong("WithHoldAtLeast(%v): want 0 (until the function has returned) to %v", d, maxHoldAtLeast)
		}
		c.least = d
		return c
	}
}

// ReleaseOnError makes a call WithHoldAtLeast release the lock at once if its function returns an error or panics. So another process, or the
// next try of this one, can run the job in the same tick. Use it for jobs that may run again after they have failed halfway. If the process is
// killed, the lock still stays taken. The function of a nested guard does not end the stay of the outer one.
func ReleaseOnError() CallOption {
	return func(c callOptions) callOptions {
		c.onError = true
		return c
	}
}

// maxHoldAtLeast is longer than any job is apart from the next; more is a mistake in units.
const maxHoldAtLeast = 366 * 24 * time.Hour

var (
	// errStaysLess: the lease of the outer hold may end sooner.
	errStaysLess = errors.New("WithHoldAtLeast inside the caller's own hold of the same key, which asked for less")
	// errLeadDegraded is not ErrUnavailable: trying again inside the same hold is of no use.
	errLeadDegraded = errors.New("Lead inside the caller's own hold of the same key, which has no lease (LocalOnly)")

	errSharedStay = errors.New("wllock: WithHoldAtLeast with Shared: want an exclusive lock")
	errSharedLead = errors.New("wllock: Lead with Shared: want an exclusive lock")
)

// conflict returns what is wrong with the options taken together.
func (c *callOptions) conflict() error {
	switch {
	case c.permits > 0:
		return c.permitConflict()
	case c.mode == distributed.Exclusive:
		return nil
	case c.least > 0:
		return errSharedStay
	case c.leads:
		return errSharedLead
	}
	return nil
}

// leaseFor adds to ask what lease the call needs.
func (l *Locker) leaseFor(c *callOptions, ask tenure.Ask) tenure.Ask {
	switch {
	case c.least > 0:
		ask.Least, ask.TTL = c.least, ttlFor(c.least, l.settings.leaseTTL)
	case c.leads:
		ask.TTL = l.settings.leaseTTL
	}
	return ask
}

// ttlFor is the TTL of a lease that lasts for d from its acquisition without being renewed: a fresh lease lasts for its claim
// window, which counts from the sending of the request (rule K4), and an answer that takes longer than H is asked for again.
func ttlFor(d, ttl time.Duration) time.Duration { // rule N2
	window := d + distributed.HeartbeatInterval(ttl)
	window += 2 * distributed.Drift(window) // twice: of the sum, and for what rounding takes
	return max(ttl, 2*window)
}
