package wllock

import (
	"errors"
	"math"

	"github.com/wllock/wllock/distributed"
)

// Permits acquires one of n permits instead of the lock. Up to n callers hold one at a time over all instances, first come first served, each
// with a lease and a fence of its own. Use it for resources with a fixed capacity, such as a partner's API.
//
//	err := locker.Do(ctx, "partner", "acme", call, wllock.Permits(8))
//
// A permit is granted when no caller is queued before it and fewer than n are held. That counts all permits, whatever n they were requested
// with, and readers (Shared), once per instance. The first in the queue holds up all behind it. If n is lowered, no caller is admitted until
// fewer than the new n are held, and no holder is stopped. Give all callers the same n, best with WithName. While they differ, up to the largest
// n are held.
//
// A call for the same key without Permits (with Exclusive, if WithName says Permits) drains the key: it waits until all permits are released,
// and permits requested after it, by any instance, wait for it. Other instances may first finish their tenure (WithMaxTenure).
//
// All else is as for a lock. A permit is renewed while the function runs, expires if the process dies, is handed on within the process, and is
// kept by WithHoldAtLeast. The fences of permits that are held at the same time have no order, so a store cannot refuse the smaller one. A
// permit's fence is greater than those of all permits that ended before it was granted. The fence of an exclusive holder is greater than those
// of all permits before it.
//
// Inside a permit, permits and readers of the same key run at once. An exclusive call gets ErrUpgrade there, as Permits does inside Shared. With
// Shared, a batch guard, DoAll or Lead, Permits is an error of the call. Over redlock a call gets ErrUnavailable, because votes cannot count.
// With LocalOnly, n callers are admitted in each process while the backend is away: choose FailClosed if n is a strict limit.
//
// To the backend each permit of a process is an instance, such as host-4k2p#3, which Locker.Inspect shows. LockInfo has the limit and how many
// permits this process holds.
func Permits(n int) CallOption {
	return func(c callOptions) callOptions {
		if n < 1 {
			return c.wrong("Permits(%d): want 1 or more", n)
		}
		c.permits = int32(min(n, math.MaxInt32))
		return c
	}
}

// Exclusive requests the lock for one caller at a time, which is the default. Use it to drain, or to write, under a name whose WithName says
// Permits or Shared. Of Exclusive, Permits and Shared, the last one wins.
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
