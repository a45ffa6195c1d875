// Package memcachelock keeps locks on memcached: a backend for wllock, for those who have nothing else. Read this first:
//
//   - There are no fences, so no store can refuse a holder that was paused. New wants consent to that: [WithUnfenced].
//   - memcached is a cache. A server that is restarted or flushed, or that evicts a lock's item when its memory is full, has
//     forgotten the lock. The next caller acquires it beside the holder, which notices with its next renewal, T/6 later at
//     most (T is the lease TTL). Give locks a server of their own, with memory to spare.
//   - With several servers each lock lives on one of them, which the client finds by a hash of the key. One that is away concerns its own
//     keys only: name the servers to [Open], or to New [WithSelector]. When the list
//     changes, keys move, and two holders are possible until the old leases are renewed: change it while no process uses locks.
//     All processes must name the same servers in the same order.
//   - A server that stood still for 1.5 T and goes on may forget a lock that it grants in that moment.
//
// What there is: exclusive and shared locks, permits, and the order of arrival over all instances as long as the item lives. Each
// request has one effect though its reply is lost.
//
//	client := memcache.New("10.0.0.1:11211")
//	client.MaxIdleConns = 64 // callers that ask at a time; with the client's default of 2 most requests dial
//	backend, err := memcachelock.New(client, memcachelock.WithUnfenced())
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// [Open] makes the client from a URL, also over TLS. Package driver/register says what a lock's item holds, and how it changes by gets and
// cas. memcached counts in whole seconds, by a timer that runs late under load: so its time decides nothing. The item's expiry, 2 T + 2 s,
// only removes a lock that no other instance waits for or shares. Until then NoWait finds a dead holder's lock held.
package memcachelock
