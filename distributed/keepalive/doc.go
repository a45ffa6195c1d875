// Package keepalive keeps the leases of a backend alive: Keeper renews them, from one timer for all of them, and Lease
// notices when one ends. It is the liveness half of a lock service's client. Order is the backend's own business. (The two
// are kept apart as in etcd's concurrency package, Session and Mutex.)
//
//	Keep ──▶ lease, first renewed (claimed) within its claim window, then every T/3
//	           ├─ Renewed(until)   the backend extended it
//	           ├─ End              the backend says that it is gone ──▶ lost
//	           ├─ no answer        tried again until it has expired ──▶ lost
//	           └─ Finish           a release begins: no more renewals, no more events
package keepalive
