// Package redislock is the distributed tier on Redis 7.0 or later, or Valkey: one server, a primary behind sentinels,
// or a cluster.
//
//	backend, err := redislock.Open("redis://localhost:6379", redislock.WithPasswordFile("/run/secrets/redis"))
//	locker, err := wllock.New("shop", backend)
//
// # A call's way
//
//	Enter ─▶ attempt ─▶ ask ─▶ group ─▶ transport ─▶ enter.lua ─▶ "lease": a lease, kept by keepalive.Keeper
//	            ▲       (asks again until answered)              └▶ "place": heartbeats, in pipelines
//	            └── ear ◀── PUBLISH wllock:<process>, by whoever released
//
// An attempt is known here before it is sent, for its grant can be quicker than its reply. Nothing depends on a
// notice: heartbeats find the grants, and renewals the wishes, that a lost one would have told.
//
// # State on the server
//
// For the lock "shop:product:1000", all in one cluster slot and all with a TTL:
//
//	shop:product:1000                   string  the owner's full token; nobody's when missing
//	wllock:{shop:product:1000}:s        string  last fence reserved, whether somebody is queued, gap for foreigners
//	wllock:{shop:product:1000}:q        zset    instances that wait, by ticket
//	wllock:{shop:product:1000}:w        hash    of each: attempt, process, mode, TTL, last heartbeat
//	wllock:{shop:product:1000}:r        zset    shared owners, by when their share is over
//	wllock:{shop:product:1000}:d:<inst> string  the instance's latest attempt that is over
//
// The key is in one of these states; every arrow is one script, and each script may be repeated:
//
//	          enter                    leave, nobody queued
//	missing ─────────▶ owned, W ms ──────────────────────────▶ missing
//	   ▲                 │ renew (the claim)                      ▲
//	   │ expiry, DEL     ▼                                        │
//	   └───────────── owned, T ms ─── leave, somebody queued ──▶ owned by the first live one, W ms, and PUBLISH
//
// A missing key somebody is queued for is given to the head by whichever script notices. docs/redis.md shows it on the
// wire, and says what is promised and what is not.
package redislock
