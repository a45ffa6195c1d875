package wllock

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
)

// Lead runs fn as the leader: while it holds the lock system:name:key, for as long as fn runs, without a maximum. Call it in every process that
// can do the work. One of them leads, and the others wait.
//
//	err := locker.Lead(ctx, "cron", "scheduler", func(ctx context.Context) error {
//		return schedule(ctx) // until ctx ends: with the caller's, or because the lock is lost
//	})
//
// If the lock was held until fn returned, Lead returns fn's error, nil or not. If the lock was lost before, Lead ignores what fn returned,
// pauses for a random time of at most H (a sixth of the lease TTL T), acquires the lock again and runs fn again. When ctx ends, Lead returns an
// error that matches ctx's error, joined with the last failure, unless that is over. While the backend is unavailable, Lead logs one warning and retries with
// backoff. Other errors are returned at once: ErrInvalidKey, ErrClosed, ErrUpgrade, ErrQueueFull, a wrong option. A panic in fn releases the
// lock and continues.
//
// When the leader's process dies, another one leads as soon as the backend ends its lease: after T at most on Redis. That may take half a second
// longer on etcd, one and a half ticks on ZooKeeper, T/6 in a database: see docs/guarantees.md. If the next leader is in its pause at that time,
// up to H is added.
//
// When the leader's process is stopped for longer than T, or cut off from the backend, another one leads. fn's context ends as soon as this
// process can tell. Only a store that checks fences refuses what fn writes in between (Held.Fence grows with every leader). fn has
// returned before the lock is released, and before Lead runs it again.
//
// Several calls on one Locker queue like other callers, and Stats and Locks show them so. WithWait, NoWait, WithLockTimeMax and WithFallback
// have no effect. Shared is an error. With LocalOnly there is no leader while the backend is unavailable, because without a lease each process
// would lead. Cancel ctx before Close, which waits for fn.
//
// Inside a hold of the same key, fn leads at once, under the lease of that hold, and Lead returns ErrLeaseLost when it is lost. With LocalOnly,
// Lead is refused inside a hold that has no lease. A hold in which fn led is lost where it would otherwise have become degraded.
func (l *Locker) Lead(ctx context.Context, name, key string, fn Func, opts ...CallOption) error {
	if fn == nil {
		return l.mistake(errNilFunc, name, key)
	}
	c := candidate{Locker: l, name: name, key: key, fn: fn, opts: append(opts[:len(opts):len(opts)], leading)}
	for {
		again, err := c.term(ctx)
		if !again {
			return err
		}
		c.rest(ctx)
	}
}

// leading makes of a call's options those of Lead.
func leading(c callOptions) callOptions {
	c.leads, c.wait, c.noWait, c.hopeless, c.lockTimeMax, c.fallback = true, 0, false, false, 0, nil
	return c
}

// candidate is a caller that leads, or wants to.
type candidate struct {
	*Locker
	name, key string
	fn        Func
	opts      []CallOption

	last   error         // why it does not lead: the backend's, or the loss of the last term; nil: it waits for the first time
	pauses time.Duration // the longest of the next pause
	logged bool          // that the backend is unavailable
}

// term waits for the lock and runs the function under it (rule N4). again: it was lost, or the backend is unavailable.
func (c *candidate) term(ctx context.Context) (again bool, err error) {
	asked := time.Now()
	e, err := c.enter(ctx, c.name, c.key, c.opts)
	if errors.Is(c.last, ErrUnavailable) && time.Since(asked) > c.settings.leaseTTL && c.policy.Suspect() == nil {
		c.last = nil // the backend was back, and had us wait for the leader
	}
	if err == nil {
		c.last, c.logged, c.pauses = nil, false, 0
		err, kept := c.lead(e)
		c.last = err
		return !kept, err
	}
	switch {
	case errors.Is(err, ErrLeaseLost) && errors.Is(c.last, ErrLeaseLost) && !errors.Is(err, ctx.Err()): // the hold around it, in which it has led
		return false, c.last
	case ctx != nil && ctx.Err() != nil && c.last != nil:
		return false, report.Join(err, c.last)
	case ctx == nil, ctx.Err() != nil, !errors.Is(err, ErrUnavailable), errors.Is(err, distributed.ErrClosed): // a closed backend stays so
		return false, err
	}
	c.unavailable(ctx, err)
	return true, err
}

// lead runs the function and then releases the lock. kept: it was held until then.
func (c *candidate) lead(e entered) (err error, kept bool) {
	returned := false
	defer func() { // also after a panic, which goes on
		e.ran(err, returned)
		if kept = e.hold.Leave(e.releaseWait); !kept {
			err = left(e.hold, false, err)
		}
	}()
	err = c.fn(e.ctx)
	returned = true
	return err, false
}

// unavailable notes that the backend is, and logs it for the first time in a row.
func (c *candidate) unavailable(ctx context.Context, err error) {
	t := c.settings.leaseTTL
	c.last, c.pauses = err, min(max(2*c.pauses, distributed.HeartbeatInterval(t)), t)
	if n, known := c.names.get(c.name); known == nil && !c.logged {
		c.logged = true
		c.observer.Warn(ctx, "cannot lead while the backend is unavailable: trying again", &n.Name, c.names.system+":"+c.name+":"+c.key,
			slog.String("error", err.Error()))
	}
}

// rest pauses before another try (rule N4): after a loss for at most H; while the backend is unavailable for up to twice as long each time, at most
// T. At random, because others have lost their locks, or the backend, at the same moment.
func (c *candidate) rest(ctx context.Context) {
	longest := max(c.pauses, distributed.HeartbeatInterval(c.settings.leaseTTL))
	timer := time.NewTimer(1 + rand.N(longest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
