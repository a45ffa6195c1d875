package wllock

import (
	"errors"
	"math"

	"github.com/wllock/wllock/distributed"
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
