// Package wllock is a distributed lock in two tiers. In each process, a fair queue per key lets one caller at a time ask
// the shared backend for the lock. Callers beyond a threshold are refused at once (load shedding).
//
//	locker, err := wllock.New("order", backend)           // once per process; Close it at the end
//	err = locker.Do(ctx, "product", id, func(ctx context.Context) error {
//		held, _ := wllock.HeldFrom(ctx)
//		return sell(ctx, id, held.Fence())
//	})
//
// The name of a lock is system:name:key, here order:product: and the id.
//
// # A call's way
//
//	        ┌───────────────────────── one process ──────────────────────────┐
//	Do ───▶ │ local queue ──turn──▶ tenure ── lease at hand? ── yes ──▶ fn   │
//	        │  │ full: ErrQueueFull   │ no                            ▲      │
//	        │  │ ctx, WithWait: leave ▼                               │      │
//	        └──┼───────────────── Backend.Enter ──lease, or place──grant──────┘
//	           └ fallback
//
// On the way out, fn returns and the turn passes to the next caller in the queue, with the lease if that may serve one
// more. When nobody waits here, or another process waits and the budget of the tenure is spent, the lease goes back to the backend, which
// grants it to the next process. The stretch in which one lease serves many callers is a tenure (elsewhere: lock
// cohorting): they share the price of one round trip to the backend.
//
// Locks are reentrant: a guard inside a guard of the same key, in a context derived from it, runs at once.
//
// # What is promised
//
// While the backend keeps its data, nobody is paused for longer than a lease lasts, and functions stop when their context
// ends, at most one exclusive caller is inside (with FailClosed). A process that was suspended, or a backend that lost its memory, can break that, as with every lock of this
// kind; what holds even then is the fence (fencing token): a number that grows with every exclusive caller. A store that
// refuses smaller numbers, at the first statement of the work, is safe.
//
//	UPDATE stock SET fence = :f WHERE id = :id AND fence < :f RETURNING qty   -- no row: a newer caller is at work, or there is no such id
//	UPDATE stock SET qty = :q   WHERE id = :id AND fence = :f                 -- and every later write alike; no row: roll back
//
// The column is fence BIGINT NOT NULL DEFAULT 0.
//
// # Failure
//
// Every refusal has a reason: ErrQueueFull, ErrWaitTimeout, ErrHeld, ErrUnavailable, ErrClosed, the error of the caller's context, ...,
// in an *Error with the tier, the time waited, and whether the function ran. If the lock is lost while the function runs,
// its context ends with ErrLeaseLost, and Do returns that error.
//
// While the backend is unreachable, calls fail with ErrUnavailable: within milliseconds if connections to it are refused, and
// after a second of silence; from then on in microseconds, with a RetryAfter. Two seconds after its return no call is refused
// any more. Stats().Backend says how it is. Safety comes before availability; LocalOnly reverses that: after one lease TTL, the
// longest in use, without the backend, the callers of one process exclude each other, and no others. See
// Held.Degraded and docs/outage.md.
package wllock
