package wllock

import (
	"context"
	"sync"
)

// Lock is a lock acquired with Acquire or Adopt, for code that does not fit into a function. It must be released, or detached.
type Lock struct {
	Held
	locker *Locker
	ctx    context.Context
	stays  bool // it is WithHoldAtLeast, and that is not an outer hold's

	mu       sync.Mutex
	released bool // guarded by mu: Release was called, or the lock was detached
}

// Acquire acquires the lock system:name:key, as Do does, and leaves its release to the caller. WithLockTimeMax limits the hold as it limits a
// function. WithFallback and SyncRelease are ignored. If ctx already holds the same key, the Lock shares that hold (reentrancy).
func (l *Locker) Acquire(ctx context.Context, name, key string, opts ...CallOption) (*Lock, error) {
	e, err := l.enter(ctx, name, key, opts)
	if err != nil {
		return nil, err
	}
	return &Lock{Held: Held{e.hold}, locker: l, ctx: e.ctx, stays: e.job != nil}, nil
}

// Context returns a context that descends from that of Acquire, carries the lock (HeldFrom), and ends when the lock is lost.
func (k *Lock) Context() context.Context { return k.ctx }

// ReleaseEarly is Release without the rest of WithHoldAtLeast, for a job that has failed and may run again.
func (k *Lock) ReleaseEarly(ctx context.Context) error {
	if k.stays && ctx != nil {
		k.hold.CutStay()
	}
	return k.Release(ctx)
}

// Release releases the lock. If the lease goes back to the backend, Release waits for the answer until ctx ends. It returns an error that
// matches ErrLeaseLost if the lock was lost before, ErrUnavailable if the backend did not answer, and the error of ctx if that ended first. In
// each case the lock is released, in the background, or at the latest when its lease expires. Repeated calls do nothing and return nil, or
// ErrLeaseLost as before. With a nil context, Release returns an error at once, and releases nothing.
func (k *Lock) Release(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	k.mu.Lock()
	again := k.released
	k.released = true
	k.mu.Unlock()
	if again {
		return left(k.hold, !k.hold.MarkedLost(), nil)
	}
	kept, err := k.hold.LeaveAndWait(ctx) // rule T5
	switch {
	case !kept:
		k.hold.MarkLost()
		return left(k.hold, false, nil)
	case err != nil:
		return &Error{Op: "release", Key: k.hold.Shown(), Tier: TierDistributed, Ran: true,
			Err: public(ctx, k.hold.Group().Observer.Redaction.Error(err))}
	}
	return nil
}
