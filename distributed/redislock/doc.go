// Package redislock is the distributed tier on Redis 7.0 or later, or Valkey: one server, a primary behind sentinels,
// or a cluster.
//
//	backend, err := redislock.Open("redis://localhost:6379", redislock.WithPasswordFile("/run/secrets/redis"))
//	locker, err := wllock.New("shop", backend)
//
// # A call's way
//
//	Enter ─▶ driver.Attempt ─▶ half.Enter ─▶ session.ask ─▶ pipeline ─▶ enter.lua ─▶ "lease": a lease, renewed by half.Renew
//	            ▲                         (repeats until answered)                └▶ "place": heartbeats by half.Look, in pipelines
//	            └── subscription ◀── PUBLISH wllock:<system>:<process>, by the process that released
//
// Nothing depends on a message: heartbeats find the grants, and renewals the contention, that a lost one would have reported.
//
// The code has four storeys. Backend opens, probes and closes. Package driver decides what becomes of a request. Below it half is its
// driver: claims, heartbeats, renewals and the subscription. They work with a session, which asks the server. What they say is in wire.go
// and reply.go. At the bottom, internal/conn has the connections.
//
// # State on the server
//
// For the lock "shop:product:1000", all in one cluster slot and all with a TTL:
//
//	shop:product:1000                        string  the owner's full token; free when missing
//	wllock:shop:{shop:product:1000}:s        string  last fence reserved, whether somebody is queued, gap for foreigners
//	wllock:shop:{shop:product:1000}:q        zset    instances that wait, by ticket
//	wllock:shop:{shop:product:1000}:w        hash    of each: attempt, process, mode, TTL, last heartbeat
//	wllock:shop:{shop:product:1000}:r        zset    shared owners, by the time their share expires
//	wllock:shop:{shop:product:1000}:d:<inst> string  the instance's latest attempt that has ended
//
// and for the system "shop", which is what stands before the key's first colon:
//
//	wllock:shop:ttl                          zset    lease TTLs in use, by the time when they are forgotten
//
// The key is in one of these states. Every arrow is one script, and each script may be repeated:
//
//	          enter                    leave, nobody queued
//	missing ─────────▶ owned, W ms ──────────────────────────▶ missing
//	   ▲                 │ renew (the claim)                      ▲
//	   │ expiry, DEL     ▼                                        │
//	   └───────────── owned, T ms ─── leave, somebody queued ──▶ owned by the first live one, W ms, and PUBLISH
//
// If the key is missing while an instance is queued, whichever script notices grants it to the head. docs/redis.md shows the
// exchange on the wire, and says what is promised and what is not.
package redislock
