// Package zklock keeps locks on an Apache ZooKeeper ensemble: a backend for wllock where no acknowledged lock may be forgotten when a
// server is lost.
//
//	backend, err := zklock.New([]string{"zk1", "zk2", "zk3"})   // or zklock.Open("zk://zk1,zk2,zk3/locks")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A lock is a node, and each request for it an ephemeral sequential child. That is the recipe of ZooKeeper's documentation and of
// Junqueira and Reed, ZooKeeper (O'Reilly 2013). The shared locks and the protected names are those of Apache Curator. What is our
// own stands in docs/zookeeper.md: until when a lease is valid, fences, and how a holder learns that another instance waits.
//
//	Enter ──▶ create the child, and delete that of Prev (one transaction)
//	            ▼
//	          look at the children ── none before mine ──▶ LEASE ── Release: delete ──▶
//	            │                                            │ └─ watch the children: does somebody wait?
//	            ▼                                            │
//	          PLACE: watch the one that I wait for           │ renewed by the session: one sync for all leases
//	            └─ it goes: look again                       ▼
//	                                                        LOST: the session is silent or expired
//
// Liveness is the session's, order the nodes': session.go and proof.go, look.go and queue.go. The package is a driver below
// distributed/driver, which has the states of a request: claim.go says how its node is created, found again and deleted.
//
// The client is github.com/go-zookeeper/zk. Its own Lock knows no contexts and is not used. What link.go does beneath it, and
// why, stands there.
package zklock
