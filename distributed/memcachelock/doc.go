// Package memcachelock keeps locks on memcached: a backend for wllock, for programs that have no other service. Read this first:
//
//   - There are no fences, so no store can refuse a holder that was paused. New requires consent to that: [WithUnfenced].
//   - memcached is a cache. A server that is restarted or flushed, or that evicts a lock's item when its memory is full, forgets the lock.
//     The next caller acquires it while the holder still works. The holder notices at its next renewal, at most T/6 later (T is the lease
//     TTL). Give locks a server of their own, with memory to spare.
//   - With several servers each lock is on one of them, which the client finds by a hash of the key. A server that is away affects only its
//     own keys: name the servers to [Open], or to New [WithSelector]. All processes must name the same servers in the same order. When the
//     list changes, keys move, and two holders are possible until the old leases are renewed. So change it while no process uses locks.
//   - A server that was stopped for 1.5 T may forget a lock that it grants in the moment when it continues.
//
// The backend supports exclusive and shared locks, permits, and the order of arrival over all instances as long as the item exists. Each
// request has one effect, even if its reply is lost.
//
//	client := memcache.New("10.0.0.1:11211")
//	client.MaxIdleConns = 64 // callers that ask at a time; with the client's default of 2 most requests dial
//	backend, err := memcachelock.New(client, memcachelock.WithUnfenced())
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// [Open] makes the client from a URL, also over TLS. Package driver/register says what a lock's item holds, and how gets and cas change it.
// memcached counts in whole seconds, by a timer that runs late under load, so its time decides nothing. The item's expiry, 2 T + 2 s, only
// removes a lock that no other instance waits for or shares. Until then, calls with NoWait find a dead holder's lock held.
package memcachelock
