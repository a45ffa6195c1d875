// Package simulated plays whole Lockers in simulated time: several processes, each a wllock.Locker with a way of its own to one simulated
// lock service, all driven from one seed. So one schedule goes through the local queue, tenure, outage policy, keepalive and a backend's client
// half. It has tests only.
//
// # A schedule
//
//	process ── Locker ── view ── network ──┬── memlock: fences, permits, downgrade, what lingers
//	process ── Locker ── view ── network ──┘   or register over a store of documents: renewals one by one, and a claim's whole life
//
// A network delays each message, and in bad weather requests are lost on their way, arrive late or twice, are refused or slow, or their answers
// are lost (see fate). A process stands still for a while: it sends, receives and runs nothing. It dies: its network is cut for ever, and its
// Locker is not closed. The service goes away and comes back. Callers come with all kinds of calls: see call.
//
// # What is judged
//
// History checks exclusion, readers, permits, fences, deadlines, data behind a store that compares fences, and in good weather the order in each
// line and at the service: see package history. Beside it stand rules that are seen while the schedule runs, each at the method of world that
// checks it: two callers of one process are never inside together, also without a lease. A hold is degraded only if the policy allows it and the
// service has been silent for T. ErrUnavailable and ErrLeaseLost have a cause. nil means that the lease has lasted. After the faults each process
// serves each key. After Close nothing is left: no caller, no key at the service, no goroutine.
//
// # What a bubble cannot do
//
// Timers of the library fire while their process stands still. memlock renews leases without a network, so what a cut or a long pause does to
// renewals is that the lease is abandoned. Clocks run evenly. The jitter of register and of the judge of outages is not drawn from the seed.
package simulated
