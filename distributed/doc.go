// Package distributed is the second tier of wllock: the contract of a lock service (Backend, Place, Lease) and the times
// that all of them share.
//
// A backend knows instances, not goroutines. Per key it has at most one owner (or several shared ones) and a queue of
// instances. A release hands the lock to the first of them and pushes the grant to it. The packages above decide which
// callers of an instance use the lease.
//
//	Enter ──▶ Lease ─────────────────────────────▶ Release
//	  └─────▶ Place ──Granted──▶ Lease ──────────▶ Release
//	            └─Leave                └─ Lost (expired, taken away)
//
// Around the contract:
//
//	keepalive   renews the leases of a backend and notices their end; a backend embeds its Lease
//	wrap        helps to decorate a backend
//	locktest    the suite that every backend must pass
//	memlock     the backend in memory, and the one to compare with; redislock is the one over Redis
//
// docs/backend-howto.md says how to write a backend. Liveness and order are kept apart, as in etcd's concurrency package:
// a lease is alive as long as it is renewed, however many wait, and a place is kept by heartbeats, whatever the owner does.
package distributed
