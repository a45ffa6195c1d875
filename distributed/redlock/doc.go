// Package redlock is a backend on N independent Redis servers, a majority of which decides: the algorithm of "Distributed Locks with
// Redis" (redis.io), with waiters that queue. It needs Redis 7 or later.
//
//	b, err := redlock.Open("redlock://redis-1,redis-2,redis-3,redis-4,redis-5")
//
// A call's way:
//
//	Enter ──▶ bid ──────enter.lua on all servers──▶ a majority votes for us ──▶ lease
//	                                          └──▶ no majority: place, in the queue of each server
//	                                                 │ a release hands each server's vote to the head of its queue,
//	                                                 │ and publishes it to that instance: one hop
//	                                                 ▼
//	                                   votes of a majority ──▶ lease ──leave.lua on all servers──▶ next
//
// On each server the lock is the plain key, SET with a token, NX and PX, as other Redlock clients set it. So wllock and those clients
// exclude each other. docs/redlock.md shows the keys, and says what may go wrong.
//
//	node        one server: the requests to it, in pipelines; its timeouts and backoff
//	bid         one token of an attempt: what each server has said about it (seats), and what follows from that
//	poll        one question to all servers, and what their answers decide
//	parting     the end of a bid: what the servers had of it
//	transfer    what becomes of a lease that is detached
//	half.go     the Backend as package driver sees it, which has the attempts above: lease, place, Prev, what is dropped, when to look
//	rules.go    what votes are worth and what majorities decide, as plain functions, and why there are never two holders
//	pauses.go   how long we wait, on which no promise depends
package redlock

// The rules of this package, which comments name where they are held. docs/design.md has those of all, and the words. Why there are
// never two holders stands in rules.go.
//
// Q1. Every question goes to all servers at once, and a majority decides, without waiting for the others. Each server has one vote, for
// one exclusive attempt or for readers. What an attempt has and does not want any more is removed from every server, with a context and
// a bound of its own. A vote that comes after that is removed again.
//
// Q2. Each server has a queue. A release gives that server's vote to its head in the same script, and publishes it. So the lock is
// never free while an instance waits, and a hand-over takes one hop.
//
// Q3. A vote counts from the send of the question that it answers or follows (K4). An attempt's questions to a server are numbered, one
// is under way at a time, and a notice with another number than the last one's is ignored. A question that takes a vote back and is not
// answered voids that server for the attempt. One that still waits gives its place to a new one, so that it blocks no server.
//
// Q4. A split vote goes to the oldest attempt. All instances compare the same tokens, so they agree. Each asks again after a round trip
// and jitter, and then yields its votes to the oldest, or to one that has a majority. The one that yields is the head of the queue
// there from then on, so none that may share the lock with the other passes it. The oldest asks with exponential backoff and full
// jitter.
//
// Q5. A server that may have forgotten votes does not count for new leases until the longest lease TTL in use has passed. It says so
// itself, for each system: it has no mark (it is new, was flushed, or restarted empty), or the mark is of another process. Every
// connection begins with the question that compares the marks of all systems that are known by then, and so does what is asked about
// any other. Every answer and every notice of a vote says how old the server's data is, because one that was restarted with an older
// queue may publish votes that follow questions of before. An age that grows faster than our monotonic clock is of a clock that was set
// forward: votes have expired early there, and that server is born anew for us. A server notes a TTL when it is old enough to count for
// it, or when a lease with it is renewed. So no vote counts for a TTL that others do not hear of, and none stops others that cannot
// have been used. It remembers a TTL for as long as a lease may last after it was named, and forgets it after twice that.
//
// Q6. A renewal counts the servers that still had the vote. One that has lost it and is free votes anew, and counts from the next
// renewal on. One that was restarted does not count for the longest TTL, for a waiter may count on a vote that it has forgotten. A
// lease that no majority can have is lost at once, and an answer that comes after its end does not bring it back.
//
// Q7. Fences are reserved by a majority of servers that count, each only while it has the lease's vote, knows of none as large, and its
// clock has not passed them. A server forgets one only when its clock has passed it. So the next are larger in any case, whatever other
// clocks say. Without WithQuorumFences there are none.
//
// Q8. A server that hangs delays no other. Each has its own connections, queues and timeouts, and the questions about one key stay in
// order. One that fails repeatedly is asked with backoff, unless no majority is left without it. A connection may take longer than a
// try. What a server must still be told is bounded, and waits for the end of its pause.
//
// Q9. Check first, write after, PUBLISH last, because a script that fails half-way is not rolled back.
//
// Q10. A Break takes back the votes of a lease, and servers that answer do not vote for it again, though they are free. Else renewals
// that run while it goes from server to server would win them back. A server takes back a vote only of what was found, and if the new
// fence is above the last one reserved there, in one script. In any case it notes whom it does not vote for: a waiter may have its
// vote, and yield it. An attempt that is met while it waits goes on with a new token. The holder asks all servers when one of them says
// that its vote is gone. Inspection asks all servers, writes nothing, and tells what a majority has.
//
// Q11. Systems that share servers are kept apart. Helper keys and channels begin with the system, then "redlock:", so that none is one
// of a Redis backend. Each system has a mark of its own on each server, and what that says counts for its locks only. In a mark of all,
// each user could make servers look old to everyone, or forge the longest T. So a server is young for a system that is new to it (Q5).
// A vote in a message is believed about the attempt and the key that it names, on the channel of their system. No message puts a
// heartbeat off or ends a lease. No vote lasts longer than the longest T that an Enter may ask for, whatever is written in the keys.
//
// Q12. The subscription to each server is where its commands go. While a process waits or holds, an echo is published there each H (at
// least 250 ms, at most 1 s) as scripts publish, and has to arrive. Else the subscription is opened anew.
//
// Q13. A detached lease is a token that follows from the id, whose votes no process counts. So a server can pass them on to any adopter. It
// does that in one script, before all that wait. Detach passes on the votes of a lease that has ended, and needs a majority that counts.
// What a minority keeps of a token expires. Adopters ask all servers at once, and a server's vote goes to the first. Who has a majority
// has the lease, by the rules of all votes, so there are never two. An adopter without any vote has lost. So has one that sees a vote of
// an older adopter: it gives its own back, and never asks again. Then the oldest that has a vote gets the others', for it sees none older.
// Or a younger one has won before: it sees a majority of that one in two rounds, which was there at one moment between them. No server
// decides alone: one that is down, silent or forgets is a vote less. With too few servers in common adopters fail, and their votes are
// given back or released. A vote that is taken or given back lasts, and counts, no longer than the detached lease would have, until it is
// renewed. So an adopter that dies, or a question that comes late, does not keep the lock for longer. What the detached lease lasts is a
// TTL in use (Q5).
