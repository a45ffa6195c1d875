// Package distributed is the second tier of wllock: what a lock service must be able to do (Backend, Place, Lease),
// and what every such service needs once, the keeping of leases (Term, Keeper).
//
// A backend knows instances, not goroutines. Per key it has at most one owner (or several shared ones) and a queue of
// instances; a release hands the lock to the first of them and pushes the grant to it. The package above decides who of
// an instance's callers uses the lease.
//
//	Enter ──▶ Lease ─────────────────────────────▶ Release
//	  └─────▶ Place ──Granted──▶ Lease ──────────▶ Release
//	            └─Leave                └─ Lost (expired, taken away)
//
// To write a backend: embed Term in the lease and start it with Keeper.Keep, derive every length of time from the TTL
// with the functions in times.go, count validity from the moment the question was sent (Validity), and run
// locktest.Run over it. The backends in the folders below are examples; memlock is the one to compare with.
//
// Liveness and order are kept apart, as in etcd's concurrency package: a lease is alive as long as it is renewed,
// whoever waits; a place is kept by heartbeats, whoever holds.
package distributed
