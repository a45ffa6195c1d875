// Package tenure stands between the two tiers: it decides which callers of an instance work under which lease of a key.
//
// A tenure is the time in which one lease serves consecutive local turns, so that a round trip to the backend is paid
// once for many callers (lock cohorting). The Tenure of a key is the baton that its turn carries: only the holder of the
// turn calls Begin and Release, so there is at most one contender per key and instance (rule T1).
//
//	turn ─▶ Begin ─ current lease healthy, T/3 left, budget not spent ──▶ caller works (a hand-off)
//	          ├── else Enter(prev) ─▶ lease ─────────────────────────────▶ caller works
//	          └────────▶ place ─ Granted ─▶ lease ───────────────────────▶ caller works
//	caller ends ─▶ End ─▶ the next has the turn: the lease stays current
//	                └───▶ nobody waits: Release, in the background (or the lease lingers)
//
// What a tenure holds:
//
//	current   the lease that callers work under, that lingers, or that passes from one turn to the next.
//	outgoing  prev, a lease whose release is to begin, or has no answer yet. The next Enter names it, so that
//	          the two cannot overtake each other. While there is a prev there is no current lease.
//	place     a position in the backend's queue. It belongs to the instance: a caller that stops waiting leaves it to the
//	          next. While there is a place there is no current lease.
//	users     the callers that work under the current lease.
//
// Begin gives each caller its fence, and is the only one above the backends to call Refill (rule T4). What happens is told to the Locker
// by the functions of Config, whose tag is the *report.Name of the lock: package report counts for Stats.
//
// docs/design.md has the rules that comments name.
package tenure
