// Package redlock is a backend on N independent Redis servers, of which a majority decides: the algorithm of "Distributed
// Locks with Redis" (redis.io), with waiters that queue. It needs Redis 7 or later.
//
//	b, err := redlock.Open("redlock://redis-1,redis-2,redis-3,redis-4,redis-5")
//
// A call's way:
//
//	Enter ──▶ attempt ──enter.lua on all servers──▶ a majority votes for us ──▶ lease
//	                                          └──▶ no majority: place, in the queue of each server
//	                                                 │ a release hands each server's vote to the head of its queue,
//	                                                 │ and publishes it to that instance: one hop
//	                                                 ▼
//	                                   votes of a majority ──▶ lease ──leave.lua on all servers──▶ next
//
// On each server the lock is the plain key, SET with a token, NX and PX, as other Redlock clients set it: those and we exclude
// each other. docs/redlock.md shows the keys, and says what may go wrong.
//
//	node        one server: what is asked of it, in pipelines; its time-outs and backoff
//	attempt     one Enter: what each server has said about it (seats), and what follows from that
//	lease       a majority of votes in use; place: an attempt that waits
//	rules.go    what votes are worth and what majorities decide, as plain functions, and why there are never two holders
//	pauses.go   how long we wait, on which no promise depends
package redlock
