// Package wllock is a distributed lock that stays fast when many callers want the same key.
//
// Callers of one process queue locally, and only the head of that queue talks to the lock service, the backend. The head acquires a
// lease: ownership of the lock for a limited time. The process serves its own queue with that lease, for up to 100 ms while other
// processes wait. So one round trip pays for many locks. Callers beyond a threshold are refused at once.
//
//	backend, err := redislock.Open("redis://localhost:6379")
//	locker, err := wllock.New("shop", backend, wllock.WithOwnedBackend()) // one per process
//	defer locker.Close(ctx)
//
//	err = locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
//		held, _ := wllock.HeldFrom(ctx) // ctx ends if the lock is lost
//		return sell(ctx, held.Fence()) // send the fence with each write
//	}, wllock.WithWait(2*time.Second))
//
// The full name of the lock is system:name:key, here shop:product:1000. On Redis that is the Redis key, so the application must not
// store anything under it.
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
// The head of the local queue has the turn. When fn returns, the turn passes to the next caller, together with the lease if the lease
// may serve one more. The time in which a process serves its own queue with one lease is a tenure (elsewhere: lock cohorting). A tenure
// ends when no caller of the process waits, or when another process waits and the budget is spent (WithMaxTenure, WithMaxHandoffs).
// Then the lease goes back to the backend, which grants the next one to the next process.
//
// Locks are reentrant. A guard inside a guard of the same key, in a context derived from it, runs at once.
//
// # Guarantee
//
// A key has at most one exclusive holder. The premises: the backend keeps its data, clocks run evenly, no process is paused for longer
// than its lease, functions stop when their context ends, and the Locker is not LocalOnly. If a premise fails, the fence (fencing token)
// still protects your data. It is a number that grows with each exclusive holder, and a database that compares it refuses a smaller one.
//
//	UPDATE stock SET fence = :f WHERE id = :id AND fence < :f RETURNING qty   -- no row: a newer caller is at work, or there is no such id
//	UPDATE stock SET qty = :q   WHERE id = :id AND fence = :f                 -- and every later write alike; no row: roll back
//
// The column is fence BIGINT NOT NULL DEFAULT 0. Package fenced does this in one line, with a table of its own.
//
// # Failure
//
// A call that is refused returns an *Error with the tier, the time waited, whether the function ran, and the reason: ErrQueueFull,
// ErrWaitTimeout, ErrHeld, ErrUnavailable, ErrClosed, the error of the caller's context, and others. If the lock is lost while the
// function runs, its context ends with ErrLeaseLost, and Do returns that error.
//
// While the backend is unreachable, calls fail with ErrUnavailable: within milliseconds if connections to it are refused, otherwise after
// a second of silence. From then on they fail in microseconds, with a RetryAfter. At most two seconds after the backend is back, calls
// are admitted again. Stats().Backend has its state. Safety comes before availability. LocalOnly reverses that: once the backend has been
// away for the longest lease TTL in use, only callers of the same process exclude each other. See Held.Degraded and docs/outage.md.
package wllock

// A call's way, function by function. docs/design.md has the rules.
//
//	1  Locker.enter      acquire.go                     names, options, key. In a hold of its own of that key? (L6) ──▶ fn
//	2  Hold.Trace        internal/hold/enter.go         the span begins, if there is a tracer (T10)
//	3  Queue.Enter       local/queue.go                 full? (L2) ──▶ ErrQueueFull. Waits (L1), may give up (L3) ──▶ TURN
//	4  Tenure.look       internal/tenure/tenure.go      a lease at hand that may serve one more? (T2) ──▶ 7
//	5  Breaker.EnterAt   internal/outage/breaker.go     backend away? (O1) ──▶ refused. LocalOnly: degraded (O4)
//	6  Backend.Enter     distributed/driver/backend.go  Enter(prev) ──▶ LEASE, or PLACE ── grant ──▶ LEASE (C1)
//	7  Hold.Inside       internal/hold/enter.go         FENCE (T4), context (T6). fn runs, that of a batch in crew
//	8  Hold.Leave        internal/hold/leave.go         the last function has returned. Stays? (N2)
//	9  Tenure.End        internal/tenure/tenure.go      unless LeaseLost was first (T6)
//	10 Observer.Ended    internal/report/observer.go    what is counted, and measured if there is a meter
//	11 Turn.Pass         local/turn.go                  a caller waits? TURN ──▶ 4 of the next caller
//	12 Tenure.Release    internal/tenure/release.go     none does: the lease lingers, or goes back (T5)
//	13 left              errors.go                      fn's error, with what was wrong (T7)
