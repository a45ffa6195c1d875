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
// Nothing depends on a message: if one is lost, heartbeats find the grants, and renewals the contention, that it would have reported.
//
// The code has four layers. Backend opens, probes and closes. Package driver decides what becomes of a request. Below it, half is its
// driver: claims, heartbeats, renewals and the subscription. They send their requests through a session, in the format of wire.go and
// reply.go. At the bottom, internal/conn has the connections.
//
// # State on the server
//
// For the lock "shop:product:1000", all in one cluster slot and all with a TTL:
//
//	shop:product:1000                        string  the owner's full token; free when missing
//	wllock:shop:{shop:product:1000}:s        string  last fence reserved, whether an instance is queued, gap for foreigners
//	wllock:shop:{shop:product:1000}:q        zset    instances that wait, by ticket
//	wllock:shop:{shop:product:1000}:w        hash    of each: attempt, process, mode, TTL, last heartbeat
//	wllock:shop:{shop:product:1000}:r        zset    shared owners, by the time their share expires
//	wllock:shop:{shop:product:1000}:d:<inst> string  the instance's latest attempt that has ended
//
// and for the system "shop", which is the part of the key before its first colon:
//
//	wllock:shop:ttl                          zset    lease TTLs in use, by the time when they are forgotten
//
// The key is in one of these states. Every arrow is one script, and each script may be repeated:
//
//	          enter                    leave, none queued
//	missing ─────────▶ owned, W ms ──────────────────────────▶ missing
//	   ▲                 │ renew (the claim)                      ▲
//	   │ expiry, DEL     ▼                                        │
//	   └───────────── owned, T ms ─── leave, some queued ────▶ owned by the first live one, W ms, and PUBLISH
//
// If the key is missing while an instance is queued, the first script that notices grants the lock to the head. docs/redis.md shows the
// exchange on the wire, and says what is promised and what is not.
package redislock

// The rules of this package, which comments name where they are held. docs/design.md has those of all, of which C1 to C7 say what
// becomes of a request, and the words.
//
// R1. Every step is one Lua script that may be repeated. It carries (instance, attempt), and an attempt's name ends with random digits,
// so a copy of the process repeats nothing. A repeat finds what the first try left: its token in the value, its place, or the note that
// it has ended, kept for max(10 s, 2 T). So it takes effect once, and an older attempt changes nothing. A try lasts H at most, an Enter
// W. go-redis is told not to repeat commands by itself. No copy of an enter can come that was sent once and answered. So a lease of
// such an enter that no other instance waits for is released without the note. If that release has no answer, and its repeat finds
// nothing, the lease counts as released.
//
// R2. The full token in the value is the owner, never the instance alone. Release and renew compare it. Releasing the token released
// last answers "released" again.
//
// R3. Enter releases prev first. If then the key is free and no instance is queued, it answers with a lease, else with a place, and the
// holder is notified that it is contended. An enter, leave or heartbeat that finds the key missing while an instance is queued grants
// the head, unless the gap of R12 runs. So no request overtakes a waiter.
//
// R4. A release makes the next live waiter the owner in the same script, and publishes the grant to that process: one hop, without
// polling. A grant that is not waited for any more is released at once.
//
// R5. Every grant starts with W, which a claim on a new connection may need (C4). W is T/2. Over a slow network it is what a round
// trip, a claim on a new connection, the drift and T/16 for a busy machine take. An Enter is refused if that is more than T. Each
// attempt names its W in all its requests. A place names 2 W as its TTL, of which the script that grants it the lock, perhaps
// another's, gives it half. So instances with different W, or T, share a key. After an Enter without an answer the next one first
// measures the round trip, with more patience than a try has.
//
// R7. A heartbeat refreshes a place and never enqueues. It finds lost grants, dead holders and lost places, so nothing depends on a
// notice. Over a slow network one is always under way. A place outlives one lost heartbeat. If no script has run for as long as a
// waiter may be silent, it was the server: silence counts anew. The places of a process share heartbeats, each sent a little early for that.
// Outside a cluster one call is for all in a crowd, and what is rare there is asked once more, place by place.
//
// R8. Renewals go out in pipelines (K1), and wait for no exchange of callers. Each reply says whether the token is contended, so a lost
// notice misleads only until the next renewal. While a cluster moves the slot a renewal names one key, because others are answered
// TRYAGAIN.
//
// R9. Fences are nanoseconds since 1970 in an int64, never Lua numbers (2^53). The next is the largest of last reserved + 1, largest
// seen + 1, and the server's time. A lease reserves a block, and what it does not use is lost. The last fence is kept for max(60 s, 4
// T). Without it, or all data, the order survives a clock that is set back by less than the time since the last grant. An enter that was sent
// twice may be granted twice, with the locks of others in between. So a grant of such a request that comes late is asked for again, or given up.
//
// R10. A lost subscription loses notices. After each reconnect all places send a heartbeat. A subscription that is silent for 2 H,
// pings included, is opened anew. So is one that commands have left, as after a DNS name leads to another server while the old one
// lives. While a process waits or holds, an echo is published each H (at least 250 ms, at most 1 s) as scripts publish, and has to arrive.
//
// R11. Readers share the lock. Its value names a generation, a set holds the members, and a set of an older generation counts for
// nothing. Scripts take a lease's mode from that value. A new reader joins only if no instance is queued, and a grant goes to the whole
// run of readers at the head (R16). A lease that is downgraded becomes the first member of a new generation, and keeps its token. The
// lock lasts as long as its last reader. If one leaves and it expires sooner, the head of the queue is notified.
//
// R12. Foreign keys, of clients that are not wllock, are respected. The head of the queue polls them with jitter. A grant to the next
// waiter never leaves the key free, but for WithInteropGap, which gives foreigners a turn. They cannot say that they want it, so with a
// gap each lease is Wanted from the beginning (T12).
//
// R13. Requests share pipelines (group commit). While a few exchanges with a server are under way, further calls gather and go out in
// one. Up to then a caller sends its own command, without a change of goroutine.
//
// R14. Check first, write after, PUBLISH last, because a script that fails half-way is not rolled back. Renew, heartbeat and release
// run when memory is full (allow-oom).
//
// R15. The lock's value names T, of readers the longest. No lease lasts longer than T from its last renewal, so a lock with more time
// left shows that the server's clock was set back. A caller that is refused such a lock cuts it to T from now. A living owner relies on
// less and renews, and a dead one's lock is free within 2 T. Foreign keys, and values without T (of older versions), are left alone.
//
// R16. A script does a bounded amount of work, because the server serves no other meanwhile. It admits 64 readers, skips 64 dead
// waiters and notifies 64 holders. A further reader is asked for a heartbeat at once. Behind further dead waiters the lock stays free,
// and the waiter whose script it was goes on at once. After a release the last in the queue is asked to, and if that is dead, too, any
// other's next heartbeat does it (within H, at most a second). Of more holders those with the longest leases are notified, and the
// others renew within T/3 (R8).
//
// R17. Inspection writes nothing, and Break ends what was found. When a lock was granted is in its fence, since when an instance waits
// in its ticket. Break compares the whole value, so it ends no later lease. It reserves a fence above all that the holder has, grants
// the head the lock as a release does, and keeps for a day who did it and why. The holder is notified, and asks: no message ends a
// lease by itself. Without the message its next renewal tells it.
//
// R18. A permit is a reader with a limit (P1), of the mode "s<limit>" in the queue, with a block of fences. Whoever counts readers
// removes the expired ones first, so a renewal that comes later finds its lease lost. The script of each reader that leaves looks at
// the head of the queue. The head looks by itself when the first of those in its way expires. Scripts of older versions drop the entry
// of a permit, whose instance queues anew.
//
// R19. Systems that share a server are kept apart. Helper keys and channels begin with the lock's system, so a user's rights to one
// system say nothing about another. The system is what stands before the first colon of the key, and follows from the key alone: all
// who lock it must find the same helper keys. What is learned of a system, fences too, counts for its locks only. No lock's key is
// among the helper keys, which begin with "wllock:". A place gets no more than the longest T that an Enter may ask for, whatever is
// written there. A message is believed as far as its sender may be entitled: on a system's channel, about its locks. A grant has to
// name the lock, attempt, instance and mode that wait here, and a fence above the one known, not minutes ahead of the clock. Else the
// server is asked. Other messages put off no heartbeat and end nothing.
//
// R20. A detached lease is one of the process "detached", which hears no messages. It is found by its token, as leases are that are renewed
// and released. So of two who adopt it one finds it, and Break ends it like another. The attempt that gives a lease away is noted as ended,
// and one that was dropped gets none by a script that comes late (R1).
//
// R21. With WithReplicaAcks a lease is given to its caller when replicas have acknowledged its claim, or that it is detached. A WAIT follows
// on the same connection. Such exchanges have slots of their own, because replicas that are away keep each for all of the timeout. W has room
// for that. What is not acknowledged is dropped, and for a second none of this process's attempts on that node keeps a place. Renewals are not
// acknowledged: a failover that loses one has the lock expire T/3 sooner, and the next renewal finds it.
