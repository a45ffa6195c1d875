// Package etcdlock keeps locks in etcd: a backend for wllock where etcd is there already, and no acknowledged lock may be
// forgotten when a member is lost.
//
//	backend, err := etcdlock.Open("etcd://h1:2379,h2:2379,h3:2379/locks")   // or etcdlock.New(client), with a client that is yours
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A request for a lock is a key below the lock's own prefix, and the order of requests is that of their create revisions, as
// in the Mutex of etcd's package concurrency. docs/etcd.md says why that Mutex is not used, what is on the wire, and what is
// promised.
//
//	Enter ──▶ one transaction: delete the key of Prev, read who is last, put ours
//	            ▼
//	          nobody was there ──────────────────────▶ LEASE ── Release: one transaction ──▶
//	            │                                        │ └─ watch our prefix: does somebody wait?
//	            ▼                                        │
//	          PLACE: watch the one before us             │ renewed by the session: one keepalive for all leases
//	            └─ it goes: look who is before us now    ▼
//	                                                    LOST: the session is silent or has expired
//
// Liveness is that of an etcd lease, here called session, so that a lease is always wllock's: session.go and alive.go. Order
// is in the keys: create.go and look.go.
//
// The requests are made with the client's connection, credentials and retries, and the messages of etcd's API. The Watcher of the
// client would take a goroutine or two per watch. Its KeepAlive does not tell when the answered request was sent.
package etcdlock
