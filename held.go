package wllock

import (
	"context"
	"time"

	"github.com/wllock/wllock/internal/heldkey"
)

// Held describes a lock that is held. Its methods may be called at any time, by any goroutine.
type Held struct{ hold *hold }

// Key is the full name of the lock, system:name:key.
func (h *Held) Key() string { return h.hold.key }

// Fence is the fencing token of the hold: a number greater than that of every earlier exclusive holder of this lock, over
// all instances, for a store that refuses smaller ones. 0: this backend has none, or the caller was let in degraded (LocalOnly).
func (h *Held) Fence() uint64 { return h.hold.use.Fence() }

// LocalWait is how long the caller waited in the local queue.
func (h *Held) LocalWait() time.Duration { return h.hold.localWait }

// DistributedWait is how long the caller waited for the backend.
func (h *Held) DistributedWait() time.Duration { return h.hold.distributedWait() }

// Handoff reports that the caller was served from a running tenure, without asking the backend.
func (h *Held) Handoff() bool { return h.hold.use.Handoff() }

// Degraded reports that only the local lock is held (LocalOnly, backend unreachable): either from the start, without a
// fence, or since the lease expired. It remains true after the backend returns. A lock that was acquired by DoAll is degraded if
// any of that call's locks is.
func (h *Held) Degraded() bool { // rule T9
	b := h.hold.together
	if b == nil {
		return h.hold.use.Degraded()
	}
	for i := range b.members {
		if b.members[i].hold.use.Degraded() {
			return true
		}
	}
	return false
}

// Until is the time until which the lock is held at least. It moves with every renewal. For a degraded lock it is always T from
// now, until LockTimeMax has passed. Then it is fixed, and the lock ends there.
func (h *Held) Until() time.Time { return h.hold.use.Lease().Until() }

// Err looks at the clocks now. It returns an error that Is ErrLeaseLost as soon as the lease has expired, even if nothing else
// has noticed, and after the lock was released. It returns ErrLockTimeMax (also joined with the other) if LockTimeMax has
// passed, and otherwise nil. Call it before a step that must not be done without the lock. For certainty, use the fence. A lock
// that was acquired by DoAll answers for all of that call's locks.
func (h *Held) Err() error {
	if h.hold.pins.Load() == 0 {
		return ErrLeaseLost
	}
	b := h.hold.together
	if b == nil {
		return h.hold.err()
	}
	for i := range b.members {
		other := b.members[i].hold
		if err := other.err(); err != nil && other.pins.Load() > 0 { // else it was released, and a nested guard keeps this one
			return err
		}
	}
	return nil
}

// HeldFrom returns the innermost lock that ctx carries: ctx is, or descends from, the context of a guarded function or of
// a Lock. The lock may have been released by now, if ctx has outlived it: see Held.Err.
func HeldFrom(ctx context.Context) (*Held, bool) {
	if l := linkOf(ctx); l != nil {
		return &l.held().self, true
	}
	return nil, false
}

// HeldKey is HeldFrom for the innermost lock of that name and key, of any Locker.
func HeldKey(ctx context.Context, name, key string) (*Held, bool) {
	for l := linkOf(ctx); l != nil; l = linkOf(l.outer()) {
		h := l.held()
		if h.name.Text == name && h.key[len(h.name.prefix):] == key {
			return &h.self, true
		}
	}
	return nil, false
}

// link is one lock in the chain of those that a context carries: the hold itself, or a nested guard's reference to it.
type link interface {
	held() *hold
	outer() context.Context
}

func linkOf(ctx context.Context) link {
	l, _ := ctx.Value(heldkey.Key).(link)
	return l
}

// Value implements context.Context.
func (h *hold) Value(key any) any {
	if key == heldkey.Key {
		return h
	}
	return h.value(key)
}

func (h *hold) held() *hold            { return h }
func (h *hold) outer() context.Context { return h.parent }

// nested is the context of a guard inside its own lock with another lock between: the innermost lock comes first.
type nested struct {
	context.Context
	hold *hold
}

// Value implements context.Context.
func (n *nested) Value(key any) any {
	if key == heldkey.Key {
		return n
	}
	return n.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine for each derived one.
func (n *nested) AfterFunc(f func()) (stop func() bool) { return afterFunc(n.Context, f) }

func (n *nested) held() *hold            { return n.hold }
func (n *nested) outer() context.Context { return n.Context }
