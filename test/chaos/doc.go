// Package chaos runs processes that add to accounts under locks, while processes, connections and the lock service fail. `make chaos` is all
// of it: a run for each cell of a table, which is a backend, a shape of its service, and a store.
//
//	make chaos                          # every cell, a minute each
//	make chaos CHAOS='redis|etcd-three' # cells whose names match
//	make chaos CHAOS_TIME=20s           # a cell, which never leaves a fault out
//
// # A run
//
// Five processes of six callers read a number and write the next, as exclusive holders. Others read it, or hold one of three permits. The
// numbers are in a Redis apart from the lock service. It never fails, and compares fences (the store "compares") or not ("none").
//
// A shuffled list of faults is done again and again, each once before any comes twice. After each the run waits until every account has been
// written anew. All is drawn from one seed: see internal/testseed. What a process does between two faults depends on the machine.
//
// # What is judged
//
// Processes write journals, which test/history checks. With a store that compares fences nothing may be found. With one that compares none,
// lost updates must be found, because holders are paused beyond their leases, and no other rule may be broken. A run that did too little
// fails. Of the rules only those count that docs/guarantees.md promises for the fault:
//
//   - With redis-localonly the service is away for so long that processes let their callers in without a lease. Only a store that compares
//     fences keeps the data then.
//   - A service that forgets (redis-memory, redis-sentinel) may have two holders. Only the data and the deadlines are judged.
//   - The order of redlock's queue is not judged, for requests may overtake each other, and it has no permits.
//   - memcached has no fences, so there is no store that compares them. It is not restarted, for it would forget.
//   - kubernetes-stand-in, s3 and dynamodb are stand-ins in the test's process, which keep the services' rules of conditions. They are not restarted
//     either. They are too busy now and then, and answer with conflicts, errors, or not at all.
//
// redlock-three-of-5 is five servers, of which each process reaches other three. On redlock-clocks clocks are set forward. Where a service can do
// without some servers, as many fail at once.
//
// Leases last a second on Redis, and two on other services.
//
// # What is measured
//
// A recovery is the time from a fault to a call that enters:
//
//	killed holder         from the kill, until another process enters
//	dead waiter           from when the holder goes on, before which the waiter was killed, until another process enters
//	half-open connection  from when the holder's connections fall silent, until another process enters
//	connection is back    from when they are not, until its process has a lease from the service
//	service is back       from then on, until each account has been entered with a lease that was granted since
//	server lost, failover the same from when one of several servers is taken away, or the primary is to be another one
//
// `make test-all` does each fault once, with the store that compares. WLLOCK_CHAOS_RESULTS names a folder, to which each run writes its result
// as JSON, whether it has passed or not.
package chaos
