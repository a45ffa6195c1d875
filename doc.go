// Package wllock is a distributed lock in two tiers. Inside each process a fair queue per key lets one caller contend
// for the lock; only that one asks the shared backend. Callers beyond a threshold are refused at once.
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
// Out it goes the same way: fn returns; the turn passes to the next in the queue, with the lease if that may serve one
// more; when nobody waits here, or others elsewhere have waited long enough, the lease goes back to the backend, which
// hands it to the next process. The stretch in which one lease serves many callers is a tenure: a round trip to the
// backend is then paid once for all of them.
//
// # What is promised
//
// While the backend keeps its data and nobody is paused for longer than a lease lasts, at most one exclusive caller is
// inside. A process that was suspended, or a backend that lost its memory, can break that, with every lock of this
// kind; what holds even then is the fence: a number that grows with every exclusive caller. A store that refuses
// smaller numbers, at the first statement of the work, is safe.
//
//	UPDATE stock SET fence = :f WHERE id = :id AND fence < :f RETURNING qty   -- no row: somebody newer is at work
//	UPDATE stock SET qty = :q   WHERE id = :id AND fence = :f                 -- and so every later write
//
// # Failure
//
// Every refusal says what it is: ErrQueueFull, ErrWaitTimeout, ErrHeld, ErrUnavailable, or the caller's own context's
// error, in an *Error with the tier, the time waited, and whether the function ran. A lock that is lost while the
// function runs ends its context with ErrLeaseLost, and Do returns that error.
//
// While the backend is away, calls fail with ErrUnavailable. The first few wait for its time-out; then a breaker opens
// and the others that would ask it are refused in microseconds, with a RetryAfter, while one at a time finds out whether
// it is back. Two seconds after its return nobody is refused any more. Safety comes before availability; LocalOnly turns
// that round: after one lease TTL without the backend, the callers of one process exclude each other, and no others. See
// Held.Degraded and docs/outage.md.
package wllock
