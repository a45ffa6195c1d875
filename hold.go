package wllock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// hold is one caller inside: its turn, its use of a lease, and the context its function runs with, all in one
// allocation. It is never used twice, for contexts and nested guards may refer to it long after its end.
//
// It ends in one of two ways, of which tenure.End decides the winner: the function and all nested guards have returned
// (the last unpin), or the lease is lost (LeaseLost). The winner, and only the winner, passes the turn on.
type hold struct {
	holdContext
	self   Held // what HeldFrom gives out
	locker *Locker
	name   *nameState
	key    string // full name
	mode   distributed.Mode

	turn   local.Turn[*tenure.Tenure]
	tenure *tenure.Tenure // the turn's baton, for when the turn is gone
	use    tenure.Use
	limit  deadline.Item[*hold] // of LockTimeMax

	localWait time.Duration // these are set before the lease is had
	turnAt    time.Time
	span      trace.Span // nil: nobody traces

	pins      atomic.Int32 // functions inside: the outer one and nested guards; 0: closed, and stays so
	overstaid atomic.Bool
	lostLease atomic.Bool // LeaseLost has come
}

// Held tells about a lock that is held. Its methods may be called at any time, by any goroutine.
type Held struct{ hold *hold }

// Key is the full name of the lock, system:name:key.
func (h *Held) Key() string { return h.hold.key }

// Fence is a number greater than that of every caller that had this lock exclusively before, over all instances; for a
// store that refuses smaller ones. 0: this backend has none.
func (h *Held) Fence() uint64 { return h.hold.use.Fence() }

// LocalWait is how long the caller stood in the local queue.
func (h *Held) LocalWait() time.Duration { return h.hold.localWait }

// DistributedWait is how long the caller waited for the backend.
func (h *Held) DistributedWait() time.Duration { return h.hold.distributedWait() }

// Handoff reports that the caller was served from a running tenure, without asking the backend.
func (h *Held) Handoff() bool { return h.hold.use.Handoff() }

// Degraded reports that there is only the local turn, because the backend is away and LocalOnly was chosen: from the
// start, and then there is no fence, or since the lease ran out. It stays so when the backend is back.
func (h *Held) Degraded() bool { return h.hold.use.Degraded() }

// Until is the time up to which the lock is held at least. It moves with every renewal. A degraded lock is the caller's
// until it is given up, so it is T from now; past LockTimeMax, when it will be taken away, it stands still.
func (h *Held) Until() time.Time { return h.hold.use.Lease().Until() }

// Err looks at the clocks now. It returns an error that Is ErrLeaseLost as soon as the lease is over, even if nothing
// has noticed yet, and after the lock has been released; ErrLockTimeMax (also beside the other) when the function has
// overstayed; else nil. Ask before a step that must not be done without the lock; for certainty, use the fence.
func (h *Held) Err() error {
	if h.hold.pins.Load() == 0 {
		return ErrLeaseLost
	}
	return h.hold.err()
}

func (h *hold) distributedWait() time.Duration { return h.use.Began().Sub(h.turnAt) }

// err says what is wrong with the hold now.
func (h *hold) err() error {
	lost, over := h.lost(), h.overstaid.Load()
	switch {
	case lost && over:
		return errors.Join(ErrLeaseLost, ErrLockTimeMax)
	case lost:
		return ErrLeaseLost
	case over:
		return ErrLockTimeMax
	}
	return nil
}

// lost reports whether the lease is over, by the clocks if nothing else has noticed.
func (h *hold) lost() bool {
	return h.lostLease.Load() || distributed.Over(time.Now(), h.use.Lease().Until())
}

// pin keeps the hold open for a nested guard. It reports false when the hold is closed.
func (h *hold) pin() bool {
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

// unpin ends one function's stay; the last one closes the hold. It returns false if the lease was lost before.
func (h *hold) unpin() bool {
	kept, pass := h.out()
	if pass {
		h.locker.pass(&h.turn, h.tenure)
	}
	return kept
}

// unpinAndWait is unpin that waits, until ctx ends, for the backend's answer to the release, if there is one. That can
// be that the lease was lost before.
func (h *hold) unpinAndWait(ctx context.Context) (kept bool, err error) {
	kept, pass := h.out()
	if pass && h.turn.Pass() == local.Kept {
		err = h.tenure.ReleaseAndWait(ctx, &h.turn)
	}
	if errors.Is(err, distributed.ErrLeaseLost) { // which only the backend knew
		return false, nil
	}
	return kept, err
}

// out is the end of one stay. pass: it was the last, and the turn is the caller's to pass on.
func (h *hold) out() (kept, pass bool) {
	if h.pins.Add(-1) > 0 {
		return !h.lost(), false
	}
	h.close()
	if h.limit.Owner != nil {
		h.locker.limits.Remove(&h.limit)
	}
	now := time.Now()
	in, kept := h.tenure.End(&h.use, now)
	if !in {
		return false, false // LeaseLost passes the turn on
	}
	h.locker.watch.ended(h, now, !kept, h.left(now, !kept))
	return kept, true
}

// left does the accounts at the end of the turn.
func (h *hold) left(now time.Time, lost bool) (degraded bool) {
	h.name.took(now.Sub(h.turnAt))
	if h.mode == distributed.Exclusive {
		h.name.pace.took(now.Sub(h.turnAt))
	}
	if lost {
		h.name.lost.Add(1)
	}
	degraded = h.locker.outage != nil && h.use.Degraded()
	if degraded {
		h.name.degraded.Add(1)
	}
	h.name.held.Add(-1)
	return degraded
}

// LeaseLost implements tenure.Owner: the context ends, and the turn goes to the next even if the function stays.
func (h *hold) LeaseLost() {
	h.lostLease.Store(true)
	now := time.Now()
	degraded := h.left(now, true)
	h.end(h.err())
	h.locker.pass(&h.turn, h.tenure)
	h.locker.tell(func() {
		h.locker.watch.ended(h, now, true, degraded)
		h.locker.log("lock lost while held", h)
	})
}

// overstay is called when the function has been in for LockTimeMax.
func (h *hold) overstay() {
	h.overstaid.Store(true)
	h.name.overstays.Add(1)
	h.end(h.err())
	h.tenure.Overstay(&h.use)
	h.locker.tell(func() { h.locker.log("lock held for longer than its maximum", h) })
}

// Value implements context.Context.
func (h *hold) Value(key any) any {
	if _, ok := key.(heldKey); ok {
		return h
	}
	return h.value(key)
}

// heldKey is under what a context has the innermost link.
type heldKey struct{}

// link is one lock in the chain of those that a context has: the hold itself, or a nested guard's mention of it.
type link interface {
	held() *hold
	outer() context.Context
}

func (h *hold) held() *hold            { return h }
func (h *hold) outer() context.Context { return h.parent }

// nested is the context of a guard inside its own lock, when there is another lock between: the innermost is the first.
type nested struct {
	context.Context
	hold *hold
}

func (n *nested) Value(key any) any {
	if _, ok := key.(heldKey); ok {
		return n
	}
	return n.Context.Value(key)
}

func (n *nested) held() *hold            { return n.hold }
func (n *nested) outer() context.Context { return n.Context }

func linkOf(ctx context.Context) link {
	l, _ := ctx.Value(heldKey{}).(link)
	return l
}

// HeldFrom returns the innermost lock that ctx was given under. It may be over by now, if ctx has outlived it: see Held.Err.
func HeldFrom(ctx context.Context) (*Held, bool) {
	if l := linkOf(ctx); l != nil {
		return &l.held().self, true
	}
	return nil, false
}

// HeldKey returns the innermost lock of that name and key, of any Locker, that ctx was given under.
func HeldKey(ctx context.Context, name, key string) (*Held, bool) {
	for l := linkOf(ctx); l != nil; l = linkOf(l.outer()) {
		h := l.held()
		if h.name.name == name && h.key[len(h.name.prefix):] == key {
			return &h.self, true
		}
	}
	return nil, false
}
