// Package zklock keeps locks on an Apache ZooKeeper ensemble: a backend for wllock that forgets no acknowledged lock when a server is
// lost.
//
//	backend, err := zklock.New([]string{"zk1", "zk2", "zk3"})   // or zklock.Open("zk://zk1,zk2,zk3/locks")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A lock is a node, and each request for it is an ephemeral sequential child. That is the recipe of ZooKeeper's documentation and of
// Junqueira and Reed, ZooKeeper (O'Reilly 2013). The shared locks and the protected names are those of Apache Curator.
// docs/zookeeper.md describes what wllock adds: until when a lease is valid, fences, and how a holder learns that another instance waits.
//
//	Enter ──▶ create the child, and delete that of Prev (one transaction)
//	            ▼
//	          look at the children ── none before mine ──▶ LEASE ── Release: delete ──▶
//	            │                                            │ └─ watch the children: does another wait?
//	            ▼                                            │
//	          PLACE: watch the one that I wait for           │ renewed by the session: one sync for all leases
//	            └─ it goes: look again                       ▼
//	                                                        LOST: the session is silent or expired
//
// The session keeps a lease alive (session.go and proof.go), and the nodes keep the order (look.go and queue.go). The package is a
// driver below distributed/driver, which has the states of a request: claim.go creates the request's node, finds it again and deletes it.
//
// The client is github.com/go-zookeeper/zk. Its own Lock takes no contexts and is not used. link.go says what it does beneath the client,
// and why.
package zklock

// The rules of this package, which comments name where they are held. docs/design.md has those of all, of which C1 to C8 say what
// becomes of a request, and the words. There is a session for each TTL in use.
//
// Z1. A node is found again by its name, which contains a random id. After a create without an answer the server catches up with the
// leader (sync), and the children tell whether it was carried out. An answer that comes after its caller has gone has its node deleted.
//
// Z2. Each waiter watches what keeps it out (C8): a writer the node before it, a reader the last writer before it. So a release wakes
// one waiter, or one run of readers. A permit that follows more than 32 watches the children. Its limit is in its node's id, so a
// process of a version without permits takes it for a reader: its writers wait for permits, and its readers pass one that waits. Every
// H, and after a reconnect, a waiter looks without an event.
//
// Z3. A server that lags lets no request in. A look of our session shows our own node and so all that came before it: if none is before
// us there, none ever will be. Lag only makes a request wait longer, and before a refusal (NoWait) the server is asked to catch up. Nor
// does lag admit too many permits: it shows too many before our node, and never too few.
//
// Z4. Validity counts from what the leader knows. The leader ends sessions, and another server tells it of requests up to half a tick
// late. So syncs are evidence, and reads never. A session lives for its timeout, less the drift allowance, from the send of a sync.
// That one was answered a quarter of the timeout, which is half a tick or more, before another was sent that was answered, too. The
// handshake of another connection counts as a sync. Only the first, which a majority has stored, counts at once. All leases of a
// session are renewed by its one task (K1, K4).
//
// Z6. A fence is made from a zxid, the number of a change, which grows over the ensemble's life. It has 19 bits of the leader's epoch,
// 32 of the counter, 12 for the callers of a lease. A lease takes zxids that it has seen while its node was there, and the deletion
// that lets the next one in has a greater one. Refill changes something, provided that the node is there. Permits that are held at a
// time may have seen the same zxid, so each has one of its own. It is that of its creation, if nothing has changed until it looked, or
// of a change made when it was admitted. The first fence of a block is left to readers, who may have seen that zxid.
//
// Z7. A key's node goes when it is not used. Its process deletes it after a minute if it has no children, else the server does, as it
// is a container. A server older than 3.5 has none, and there the process tries each minute. A node with children is never deleted, and
// a request that misses it creates it again.
//
// Z8. A break deletes the nodes of the holders that were found, and writes its record in the same transaction. So the next one's fences
// begin at its zxid. It ends no later lease: what was found is named by the zxid of a creation, which never comes again, while a
// sequence does once the key's node was deleted. Inspection sets no watch.
//
// Z10. A key's node is worn before its sequence ends. A server gives 2^31 sequences, and then one to all. So a request with one of the
// last million is not in line: its process replaces it by one in a node below, and all look at both, the upper one first. The requests
// below see all in line above, which came before the first worn one (Z3), and come after them. The lower node counts only if the upper
// one says by its count that it is worn, and keeps that from being deleted. So processes may disagree about the node that is in use.
//
// Z11. A detached lease is a persistent node that stands in for its holder's. One transaction creates it with the same sequence, and deletes
// the holder's. An adoption does the same with a node of the adopter's session. So one of them is always there, and Z3 holds. Its id begins
// with an 8 and follows from that of the lease, its content says how long it lasts. No server deletes it then. Who waits behind it, or asks
// with NoWait, does, once a change made now is so much later than its creation by the leader's clock. So a leader with another clock ends it
// sooner or later than that, and one that no request asks for stays. To a process of an older version it is a holder, which it waits for and
// never deletes. Where only such processes ask, the lock stays taken until a break.
