// Package distributed is the second tier of wllock: the contract of a lock service (Backend, Place, Lease) and the times that all
// backends share.
//
// A backend knows instances, not goroutines. Per key it has at most one holder (or several shared ones) and a queue of instances. A
// release hands the lock to the first instance in the queue and pushes the grant to it.
//
//	Enter ──▶ Lease ─────────────────────────────▶ Release
//	  └─────▶ Place ──Granted──▶ Lease ──────────▶ Release
//	            └─Leave                └─ Lost (expired, taken away)
//
// A Backend is one connection of this process to a lock service. A Lease is the right to one key for a limited time: keepalive
// renews it until it ends. It ends in one of two ways, of which the first to come wins:
//
//	released   by its user: Release, StartRelease, or as the Prev of the next Enter. Lost is never closed then
//	lost       by time or by the service: no renewal was answered until it expired by this machine's clocks, or an answer says
//	           that it has gone. Lost is closed, the Watcher is told, and LostError says why the latest renewal has failed
//
// Abandon ends the lease in neither way: an abandoned lease is no longer renewed, and stays held until it is released or expires.
//
// A lease has a reserve of fences. NextFence takes one, and Refill fetches more. A lease may also fetch more by itself before its reserve
// is used up. Its user does not notice that.
//
// A Backend may have more abilities than its three methods. Type assertions find them (InspectorOf, ProberOf, TransfererOf and RecorderOf
// look into decorators):
//
//	Observable   reports each exchange, so that an outage is noticed without further questions
//	TTLRegistry  knows the longest TTL in use, for LocalOnly
//	Prober       says whether a lock of a key and TTL would work
//	Inspector    says who holds and who waits, and ends a lease by force
//	Transferer   detaches an exclusive lease from its instance, for another one to adopt
//	Recorder     remembers how the latest runs under its locks ended
//
// Around the contract:
//
//	keepalive   renews the leases of a backend and notices their end; a backend embeds its Lease
//	wrap        helps to decorate a backend
//	locktest    the suite that every backend must pass
//	memlock     the backend in memory, and the one to compare with; redislock is the one over Redis
//
// docs/backend-howto.md says how to write a backend, and docs/design.md has the rules (K3, T1) that comments name. Two packages use this
// one: internal/tenure decides which callers of an instance use a lease, and internal/hold is one caller inside.
//
// Liveness and order are separate, as in etcd's concurrency package: a lease is alive as long as it is renewed, however many instances
// wait, and heartbeats keep a place, whatever the holder does.
package distributed
