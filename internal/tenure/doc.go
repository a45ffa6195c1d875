// Package tenure stands between the two tiers: it decides who of an instance's callers works under which lease of a key.
//
// A tenure is the stretch in which one lease serves consecutive local turns, so that a round trip to the backend is paid
// once for many callers. The Tenure of a key is the baton that its turn carries: Begin and GiveUp are called only by
// the one who has the turn, so there is at most one contender per key and instance.
//
//	turn ─▶ Begin ─ lease in hand, healthy, T/3 left, budget not spent ─▶ caller goes in (a hand-off)
//	          ├── else Enter(prev) ─▶ lease ─────────────────────────────▶ caller goes in
//	          └────────▶ place ─ Granted ─▶ lease ───────────────────────▶ caller goes in
//	caller comes out ─▶ End ─▶ the next has the turn: the lease stays here for it
//	                     └───▶ nobody waits: GiveUp, the lease goes back in the background (or lingers)
//
// What of a key is where:
//
//	lease     in use, lingering, or on its way from one turn to the next. At most one.
//	prev      a lease that is to be given up, or is being given up without an answer yet. The next Enter names it, so
//	          that the two cannot overtake each other. While there is a prev there is no lease.
//	place     a position in the backend's queue. It belongs to the instance: a caller that gives up leaves it to the
//	          next. While there is a place there is no lease.
package tenure
