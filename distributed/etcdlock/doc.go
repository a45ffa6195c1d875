// Package etcdlock keeps locks in etcd: a backend for wllock, for programs that have etcd already. It forgets no acknowledged lock when a
// member is lost.
//
//	backend, err := etcdlock.Open("etcd://h1:2379,h2:2379,h3:2379/locks")   // or etcdlock.New(client), with a client that is yours
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A request for a lock is a key below the lock's own prefix, and the order of requests is that of their create revisions, as in the Mutex
// of etcd's package concurrency. docs/etcd.md says why this package does not use that Mutex, what is on the wire, and what is promised.
//
//	Enter ──▶ one transaction: delete the key of Prev, read who is last, put ours
//	            ▼
//	          none was there ────────────────────────▶ LEASE ── Release: one transaction ──▶
//	            │                                        │ └─ watch our prefix: does another wait?
//	            ▼                                        │
//	          PLACE: watch the one before us             │ renewed by the session: one keepalive for all leases
//	            └─ it goes: look who is before us now    ▼
//	                                                    LOST: the session is silent or has expired
//
// An etcd lease keeps requests alive. It is called a session here, so that a lease is always wllock's: session.go and alive.go. The keys
// keep the order: create.go and look.go.
//
// The package sends messages of etcd's API over the client's connection, with its credentials and retries. It does not use the client's
// Watcher, which takes a goroutine or two per watch, or KeepAlive, which does not tell when the answered request was sent.
package etcdlock

// The rules of this package, which comments name where they are held. docs/design.md has those of all, of which C1 to C8 say what
// becomes of a request, and the words. There is a session for each TTL in use.
//
// E1. A request has one effect. A repeat finds what an earlier try has created, by letters in the key's value that no other request
// has. One that finds another's takes another key, because a copy of the process knows the same free names. etcd can commit a proposal
// long after its client has given up. So a key whose create was not answered is deleted together with a write to the session's guard,
// which every create compares: what comes later does nothing.
//
// E2. Each waiter watches what keeps it out (C8): a writer the last key before its own, a reader the last writer before it. So a
// release wakes one waiter, or one run of readers, which looks who is before it now. Reads are linearizable, and those of a permit show
// the whole queue, so no look lacks an earlier key. A writer's key that was written once more is a lease that was downgraded: readers enter
// beside it. A holder that shares the lock watches the first writer that waits: when that has left, others may join again. NoWait reads
// the queue, and creates its key provided that none has come since. A process of a version without permits takes them for writers: its
// writers wait for them, and its readers pass one that waits.
//
// E3. Nothing depends on a watch. A watch begins with the current revision, because a server brings one that begins in the past up to
// date only every 100 ms. Its owner looks if something has changed before. All share one stream, which is opened anew when it has said
// nothing for 3 s. They go on at the revision after the last that they have seen, and if that was compacted the owner looks. When a
// watch is refused, as with an invalid token, the stream is opened anew, and all owners look. A watch that the server has not confirmed
// is none: its holder looks each T/3. Ids count the watches of a stream, as etcd's own proxy does, which takes no others. Every H a waiter
// looks anyway, sixty of them in a request.
//
// E4. Validity counts from the send of a keepalive that was answered and confirmed, less the drift allowance. A leader that the others
// have left, or that was stopped while they elected another, answers keepalives of which the new one knows nothing. So a read follows
// each, which a quorum confirms, and both have to be of one term. A change of leaders extends leases and never shortens them. All
// leases of a session are renewed by its one task (K1, K4).
//
// E6. A fence is made from a revision, which grows over the cluster's life: 47 bits, and 16 for the callers of a lease. A lease takes
// revisions at which it was the owner. These are that of the transaction or the look that made it so, and not of a waiter's own key,
// which is older than the refills of the owner before. The deletion that lets the next one in has a greater one. Refill writes,
// provided that the key is there. Permits that are held at a time may have seen the same revision, so each has one of its own. It is
// that of its create, if that has admitted it, or of a change made when it was admitted. The first fence of a block is left to readers,
// who may have seen that revision.
//
// E7. Names of keys are used again, because etcd walks over deleted ones until they are compacted: with a new key for each request a
// lock would become slower with every use. A name is free, once, when etcd has answered that its key is gone, and not if a create of it
// may still be carried out. What can meet the next use of a name compares a create revision or the guard. So does a create that deletes
// the lease before it.
//
// E8. A break deletes the keys of the holders that were found, if they were not written since, and writes its record in the same
// transaction. So it ends no later lease, and the next one's fences begin at its revision. Inspection is one read.
//
// E9. A detached lease is the holder's key with the id in its value, on an etcd lease of its own, which no process keeps alive. One
// transaction writes it, and one that of the adopter. The create revision stays, and so does the place in the queue. The value says which
// version of the key is the exclusive one, and only a later one is a downgrade. A transaction that comes late finds that the key or the
// guard was written since, or that its etcd lease was revoked. To a version without detached leases the key would be that of a downgraded
// lease. So there is another key beside it, until the adopter releases: to that version one of a writer, behind which it waits. Its readers
// and permits that waited before lose their places, and queue again.
