// Package hold is what happens inside a lock: a Hold is one caller inside, with its turn, its use of a lease, and the context that its
// function runs with. It goes through both tiers (Queue, Begin), and it has one way out (Leave). It knows no Locker and no options.
//
//	Queue ──turn──▶ Begin ──lease──▶ functions inside: the outer one, and nested guards (Pin) ──▶ Leave ──▶ the turn is passed on
//	                                   ├ LeaseLost: the context ends, and the turn is passed on at once
//	                                   └ LimitBy: the context ends, and the lease is abandoned
package hold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// ErrLockTimeMax is the cause of the context of a hold that has lasted for too long: see LimitBy.
var ErrLockTimeMax = keyless.Errorf("lock held for longer than its maximum")

// ErrDetached is the cause of the context of a hold that has given its lease away.
var ErrDetached = keyless.Errorf("lock detached: it stays taken until its token is used, or its time has passed")

// Group is what the holds of a Locker share.
type Group struct {
	Observer *report.Observer
	limits   *deadline.Set[*Hold] // when each hold overstays, or has stayed for long enough
}

// NewGroup returns a Group.
func NewGroup(o *report.Observer) *Group {
	return &Group{Observer: o, limits: deadline.New(func(_ time.Time, due []*Hold) {
		for _, h := range due {
			h.due()
		}
	})}
}

// Close frees the timer, when no hold is open any more.
func (g *Group) Close() { g.limits.Close() }

// Hold is one caller inside: its turn, its use of a lease, and the context its function runs with, all in one
// allocation. It is never reused, because contexts and nested guards may refer to it long after its end.
//
// It ends in one of two ways, and tenure.End decides which: the function and all nested guards have returned (the last
// of them leaves), or the lease is lost (LeaseLost). The winner, and only the winner, passes the turn on.
type Hold struct {
	ownContext
	Self any // what its owner shows as this hold, for those who find it in a context

	// Set by Init, then read only.
	group *Group
	name  *report.Name
	key   string // full name
	mode  distributed.Mode

	foreign    report.Wait // in the room that mode leaves, as are the next
	overstayed atomic.Bool // LockTimeMax has passed
	lostLease  atomic.Bool // LeaseLost has been called
	detached   atomic.Bool // GiveAway has succeeded
	cut        atomic.Bool // CutStay has been called

	// Written by the caller until it is let in. From then on turn and tenure are for the winner of tenure.End, the others are read only.
	turn      turn
	turnAt    time.Time // when the caller got its turn, or, while it waits for one, when it asked
	localWait time.Duration
	use       tenure.Use
	spans     *report.Spans  // nil: not traced
	tenure    *tenure.Tenure // the turn's baton, for use after the turn has gone
	flight    outage.Flight  // the context of its Enters
	together  *All           // the DoAll that acquires this lock with others; nil: none

	limit    deadline.Item[*Hold]        // when LockTimeMax has passed; in the group's limits if it has an owner
	reported atomic.Pointer[report.Call] // nil: nobody measures, or nothing has been reported yet
	pins     atomic.Int32                // functions inside: the outer one and nested guards; 0: closed, and stays so
	// inquiry is set before the context ends, or the release returns; nil: nobody asks who broke the lock. A function that returns by
	// itself in the moment of the loss may read nil before it is set, and is not told.
	inquiry atomic.Pointer[report.Inquiry]
}

// Init makes h a hold that is to be acquired, by a caller with the context parent.
func (h *Hold) Init(g *Group, parent context.Context, n *report.Name, key string, mode distributed.Mode) {
	h.group, h.parent, h.name, h.key, h.mode = g, parent, n, key, mode
}

// Group is what h shares with the other holds of its Locker.
func (h *Hold) Group() *Group { return h.group }

// Name is that of the lock, without system and key.
func (h *Hold) Name() string { return h.name.Text }

// Key is the full name of the lock.
func (h *Hold) Key() string { return h.key }

// Is reports whether the lock has that name and key.
func (h *Hold) Is(name, key string) bool {
	return h.name.Text == name && h.key[len(h.group.Observer.System)+len(name)+2:] == key
}

// Shown is the full name as errors have it.
func (h *Hold) Shown() string { return h.group.Observer.Redaction.Name(h.key) }

// Mode is that of the lock. Permits are Shared.
func (h *Hold) Mode() distributed.Mode { return h.mode }

// Permits is how many permits the caller has allowed at a time. 0: it has no permit.
func (h *Hold) Permits() int { return int(h.turn.Permits()) }

// Fence is the caller's fence, 0 if it has none.
func (h *Hold) Fence() uint64 { return h.use.Fence() }

// Handoff reports that the caller was served from a running tenure.
func (h *Hold) Handoff() bool { return h.use.Handoff() }

// Least is how long the lock stays taken at least, unless that was cut.
func (h *Hold) Least() time.Duration {
	if h.cut.Load() {
		return 0
	}
	return h.use.Least()
}

// Began is when the caller was let in.
func (h *Hold) Began() time.Time { return h.use.Began() }

// Until is the time until which the lock is held at least.
func (h *Hold) Until() time.Time { return h.use.Lease().Until() }

// TurnAt is when the caller got its turn.
func (h *Hold) TurnAt() time.Time { return h.turnAt }

// LocalWait is how long the caller waited in the local queue.
func (h *Hold) LocalWait() time.Duration { return h.localWait }

// DistributedWait is how long the caller waited for the backend.
func (h *Hold) DistributedWait() time.Duration { return h.use.Began().Sub(h.turnAt) }

// Degraded reports that the lock has no lease, or another one of its DoAll.
func (h *Hold) Degraded() bool {
	if h.together != nil {
		return h.together.degraded()
	}
	return h.use.Degraded()
}

// Check says what is wrong with the lock now, or with another one of its DoAll.
func (h *Hold) Check() error {
	switch {
	case !h.Open():
		if h.detached.Load() {
			return ErrDetached
		}
		return distributed.ErrLeaseLost
	case h.together != nil:
		return h.together.check()
	}
	return h.Fault()
}

// Open reports that functions are inside.
func (h *Hold) Open() bool { return h.pins.Load() > 0 }

// Fault says what is wrong with the hold now.
func (h *Hold) Fault() error {
	lost, overstayed := h.Lost(), h.overstayed.Load()
	switch {
	case lost && overstayed:
		return report.Join(h.loss(), ErrLockTimeMax)
	case lost:
		return h.loss()
	case overstayed:
		return ErrLockTimeMax
	}
	return nil
}

// Lost reports whether the lease has expired, by the clocks if nothing else has noticed (rule K2).
func (h *Hold) Lost() bool {
	return h.lostLease.Load() || distributed.Over(time.Now(), h.use.Lease().Until())
}

// loss is the ErrLeaseLost of a lock that was lost, with the reason why its lease was not renewed, as far as that is known.
func (h *Hold) loss() error {
	err := distributed.LossOf(h.use.Lease())
	if e, ok := errors.AsType[*distributed.LostError](err); ok {
		return &distributed.LostError{At: e.At, Err: h.group.Observer.Redaction.Error(e.Err)}
	}
	return err
}

// MarkLost notes that the lock was lost, also if only the clocks knew.
func (h *Hold) MarkLost() { h.lostLease.Store(true) }

// MarkedLost reports that the loss has been noticed, or noted.
func (h *Hold) MarkedLost() bool { return h.lostLease.Load() }

// Broken is who broke the lock, if it is known. It waits for the backend to say.
func (h *Hold) Broken() *distributed.Breaking { return h.inquiry.Load().Broken() }

// Insist asks for a lease of the backend from now on: false if there is none, and one without the backend is of no use.
func (h *Hold) Insist() bool { return h.tenure.Insist(&h.use) }

// context is the one that the function runs with.
func (h *Hold) context() *ownContext {
	if h.together != nil {
		return &h.together.ownContext
	}
	return &h.ownContext
}

// Context is the one that the function runs with, without spans.
func (h *Hold) Context() context.Context {
	if h.together != nil {
		return h.together
	}
	return h
}

// outside is the context around the call, for what is not the function's business: reports and the release.
func (h *Hold) outside() context.Context { return h.context().parent }

// End ends the context of the functions inside.
func (h *Hold) End(cause error) { h.context().end(cause) }

// Ended returns the error of the context that the hold has ended its own with, and the cause. nil: it has not, or the parent has ended
// before.
func (h *Hold) Ended() (err, cause error) {
	if ended := h.context().endedByHold(); ended != nil {
		return ended.Err(), context.Cause(ended)
	}
	return nil, nil
}

// Pin keeps the hold open for a nested guard, which leaves it like the first function. It reports false if the hold is closed.
func (h *Hold) Pin() bool { // rule L6
	for {
		n := h.pins.Load()
		if n == 0 {
			return false
		}
		if h.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// LeaseLost implements tenure.Owner: the context ends, and the turn passes to the next caller even if the function stays.
func (h *Hold) LeaseLost() { // rule T6
	if h.tenure.Staying(&h.use) {
		h.stayLost()
		return
	}
	h.lostLease.Store(true)
	h.ended(time.Now(), true)
	if err := h.loss(); !h.group.Observer.LostByOutage(h.key, err) {
		h.warn("lock lost while held", report.Unrenewed(err)...)
		h.inquire()
	}
	h.endContext()
	h.pass()
}

// endContext ends the context of the functions inside. If they have left meanwhile, it may be that of a guard nested in another
// lock of the same DoAll, which is still held.
func (h *Hold) endContext() {
	if h.Open() {
		h.End(h.Fault())
	}
}

// Readmit implements tenure.Owner: sharers that found the lease draining may come in beside this one again.
func (h *Hold) Readmit() { h.turn.Reopen() }

// Await implements tenure.Owner.
func (h *Hold) Await(own bool) <-chan struct{} {
	if own {
		h.turn.Aside()
		return nil
	}
	return h.turn.Await()
}

// Alone implements tenure.Owner.
func (h *Hold) Alone(ctx context.Context, deadline time.Time) error {
	return ofTenure(h.turn.Alone(ctx, deadline))
}

// Follow implements tenure.Owner.
func (h *Hold) Follow(ctx context.Context, deadline time.Time) error {
	return ofTenure(h.turn.Follow(ctx, deadline))
}

// Awaited implements tenure.Owner.
func (h *Hold) Awaited() { h.passReceived() }

// ofTenure makes an error of the turn one of the tenure's.
func ofTenure(err error) error {
	switch err {
	case local.ErrBehind:
		return tenure.ErrBehind
	case local.ErrTimeout:
		return tenure.ErrTimeout
	case local.ErrClosed:
		return tenure.ErrClosed
	default:
		return err
	}
}
