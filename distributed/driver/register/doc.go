// Package register makes a backend of a Store, which keeps one small document per key and changes it by compare-and-set. It is a
// driver.Driver: what becomes of a request is decided there.
//
// A lock is one document, which holds its owners and its queue. For each step a process reads the document, changes it by a pure function,
// and writes it if no other process has meanwhile. Otherwise it makes the step again. So a step happens as a whole, whatever others do:
//
//	Enter ──▶ Put, if absent ── written ──────────────▶ LEASE ── Release: I go, the head of the queue
//	            │ conflict                                │      becomes an owner, in one Put
//	            ▼                                         │ renewed: my beat counts on, by Put
//	          Get, Put: I am in the queue                 ▼
//	            ▼                                       LOST: I am not in it
//	          PLACE: Get, again and again, ── I am an owner ──▶ LEASE
//	            │    or when a Watch tells
//	            └─ an owner's beat stands still: take it out, grant the head
//
// A request has one effect though its reply is lost: what was carried out is found by the id of its claim. A process remembers what it wrote
// last, and tries each step on that first. So where Put returns versions, a key that no other process uses costs one exchange per step.
//
// An owner that is dead is found by those that wait, or share the lock with it, or ask more than once, each by its own monotonic clock. An
// owner whose beat has not changed for T since one of them first read it has had no renewal for at least T, as in Kubernetes' leader election.
// So no clock of the Store decides anything. Where the Store forgets a document that was not written for a while, that only removes a lock
// that no other process waits for or shares. Until then NoWait finds a dead holder's lock held.
//
// A lease that is held for long is vouched for by a session, which beats for all such leases of its process: see session. So they cost one write
// every third of T. Where the Store may forget each lease has its own beats, since its document has to be written anyway.
//
// # Fences
//
// Each grant reserves fences in the step that makes it an owner, so they grow with the order of grants. What keeps them growing when the
// document has gone depends on the Store:
//
//	Numberer     the number of the write that made the document. Free locks leave nothing behind
//	otherwise    the time. The documents of free locks stay for two days, and then the time is above their fences, on clocks that are not
//	             wrong by a day
//	Forgetful    there are no fences
package register
