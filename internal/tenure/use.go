package tenure

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Use is one caller that works under a lease. It is a field of the caller's own state. Its methods are for its owner.
type Use struct {
	Owner Owner // set before Begin

	lease   distributed.Lease // these five are set by Begin, then read only
	fence   uint64
	began   time.Time
	least   time.Duration // Ask.Least
	handoff bool

	// guarded by Tenure.mu
	attached      bool
	overstayed    bool
	staying       bool   // the caller has returned, and the lock stays taken
	batch         uint32 // callers that it works for, as the leader of a batch; 0: itself
	before, after *Use
}

// Owner is notified of what happens to the lease it works under. Its methods must not block.
type Owner interface {
	// LeaseLost says that the lease is lost. The owner passes on its turn itself.
	LeaseLost()
	// Await is called when a permit begins to wait at the backend. The channel receives a value when a fellow has passed it its
	// lane (rule P2), never one that waits for a lease of its own.
	Await(own bool) <-chan struct{}
	// Awaited is called when a permit has a lease and waits no longer. That comes before it is let in: from then on LeaseLost
	// may pass on the turn, and no goroutine must be calling its lane.
	Awaited()
	// Follow is called before a caller with Ask.Early asks the backend. It returns when the permits of this instance that came before have a lease
	// or a place, so that they are before it there (rule P6).
	Follow(ctx context.Context, deadline time.Time) error
	// Alone is called when a caller with Ask.Early has a lease, before it is let in. It returns when no permits of this instance are held.
	// ErrBehind: all that are held wait at the backend, perhaps behind this lease (rule P6).
	Alone(ctx context.Context, deadline time.Time) error
	// Readmit says that the lease may admit further sharers: those that wait after ErrDrain are to begin again.
	Readmit()
}

// Lease is what the caller works under.
func (u *Use) Lease() distributed.Lease { return u.lease }

// Fence is the caller's fence, 0 if the backend has none.
func (u *Use) Fence() uint64 { return u.fence }

// Handoff reports that the caller was served from a running tenure.
func (u *Use) Handoff() bool { return u.handoff }

// Began is when the caller was let in.
func (u *Use) Began() time.Time { return u.began }

// Batch is the number of callers that the leader of a batch works for, itself included, and 0 if it leads none. It may be read
// when the caller is out, and by the caller.
func (u *Use) Batch() int { return int(u.batch) }

// Least is how long the lock stays taken from Began on. 0: only until the caller returns.
func (u *Use) Least() time.Duration { return u.least }

// Stays is until when the lock stays taken.
func (u *Use) Stays() time.Time { return u.began.Add(u.least) }

// users are the callers that work under current.
type users struct {
	first      *Use
	mode       distributed.Mode // of the callers; a reader may work under an exclusive lease
	count      int
	overstayed int // of count
}

func (s *users) add(u *Use) {
	u.attached, u.after = true, s.first
	if s.first != nil {
		s.first.before = u
	}
	s.first = u
	s.count++
}

func (s *users) remove(u *Use) {
	if u.before == nil {
		s.first = u.after
	} else {
		u.before.after = u.after
	}
	if u.after != nil {
		u.after.before = u.before
	}
	u.attached, u.before, u.after = false, nil, nil
	s.count--
	if u.overstayed {
		s.overstayed--
	}
}
