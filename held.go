package wllock

import (
	"context"
	"fmt"
	"time"

	"github.com/wllock/wllock/internal/hold"
)

// Held describes a lock that is held. Its methods may be called at any time, from any goroutine.
type Held struct{ hold *hold.Hold }

// own is a hold and what HeldFrom returns of it, in one allocation.
type own struct {
	hold.Hold
	held Held
}

// hold makes o a hold that can be found in a context.
func (o *own) hold() *hold.Hold {
	o.held.hold = &o.Hold
	o.Self = &o.held
	return &o.Hold
}

// Key returns the full name of the lock, system:name:key.
func (h *Held) Key() string { return h.hold.Key() }

// Fence returns the fencing token of the hold, for a store that refuses smaller ones. It is greater than that of every earlier exclusive holder
// of this lock, over all instances. 0: the backend has no fences, or the caller was admitted degraded (LocalOnly).
func (h *Held) Fence() uint64 { return h.hold.Fence() }

// LocalWait returns how long the caller waited in the local queue.
func (h *Held) LocalWait() time.Duration { return h.hold.LocalWait() }

// DistributedWait returns how long the caller waited for the backend.
func (h *Held) DistributedWait() time.Duration { return h.hold.DistributedWait() }

// Handoff reports whether the caller was served from a running tenure, without a request to the backend.
func (h *Held) Handoff() bool { return h.hold.Handoff() }

// Degraded reports whether only the local lock is held (LocalOnly, backend unreachable): either from the start, without a fence, or since the
// lease expired. It remains true after the backend is back. A lock acquired by DoAll is degraded if any lock of that call is.
func (h *Held) Degraded() bool { return h.hold.Degraded() } // rule T9

// Until returns the time until which the lock is held at least. Every renewal moves it. For a degraded lock it is always T from now, until
// LockTimeMax has passed. Then it is fixed, and the lock ends at that time.
func (h *Held) Until() time.Time { return h.hold.Until() }

// Err reads the clocks now. It returns an error that Is ErrLeaseLost as soon as the lease has expired, even if nothing else has noticed, and
// after the lock was released. It returns ErrLockTimeMax (also joined with the other) if LockTimeMax has passed, and otherwise nil. Call it
// before a step that must not be done without the lock. For certainty, use the fence. For a lock acquired by DoAll, Err covers all locks of that
// call.
func (h *Held) Err() error { return h.hold.Check() }

// HeldFrom returns the innermost lock that ctx carries: ctx is, or descends from, the context of a guarded function or of a Lock. If ctx has
// outlived the lock, that lock is already released: see Held.Err.
func HeldFrom(ctx context.Context) (*Held, bool) {
	if l := hold.Innermost(ctx); l != nil && !hold.IsLent(l) {
		return heldOf(l.Hold()), true
	}
	return nil, false
}

// HeldKey is HeldFrom for the innermost lock of that name and key, of any Locker.
func HeldKey(ctx context.Context, name, key string) (*Held, bool) {
	for l := hold.Innermost(ctx); l != nil && !hold.IsLent(l); l = hold.Around(l) {
		if h := l.Hold(); h.Is(name, key) {
			return heldOf(h), true
		}
	}
	return nil, false
}

func heldOf(h *hold.Hold) *Held { return h.Self.(*Held) }

// Format implements fmt.Formatter: it prints system and name, but not the key.
func (h Held) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "wllock.Held(%s:%s)", h.hold.Group().Observer.System, h.hold.Name())
}
