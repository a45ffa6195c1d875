// Package redislock is the distributed tier on Redis 7.0 or later, or Valkey: one server, a primary behind sentinels,
// or a cluster.
//
//	backend, err := redislock.Open("redis://localhost:6379", redislock.WithPasswordFile("/run/secrets/redis"))
//	locker, err := wllock.New("shop", backend)
//
// # A call's way
//
//	Enter ─▶ attempt ─▶ session.ask ─▶ pipeline ─▶ enter.lua ─▶ "lease": a lease, kept by keepalive.Keeper
//	            ▲      (repeats until answered)              └▶ "place": heartbeats, in pipelines
//	            └── subscription ◀── PUBLISH wllock:<system>:<process>, by the process that released
//
// An attempt is registered before it is sent, because its grant can be quicker than its reply. Nothing depends on a
// message: heartbeats find the grants, and renewals the contention, that a lost one would have reported.
//
// The code has three storeys. Backend opens, probes and closes. Below it a session asks the server, and attempts, places,
// leases, heartbeats, renewals, the subscription and background tasks work with the session. What they say is in wire.go
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
