package distributed

import (
	"context"
	"strings"
	"time"
)

// Transferer is an optional ability of a Backend: an exclusive lease can leave its instance, and another instance can adopt it later. In between
// the lease is detached: the lock stays taken, and no instance renews it. The service knows it by an id, which is not a secret. Inspect shows
// DetachedName(id) as its holder.
type Transferer interface {
	Backend
	// Detach turns l, an exclusive lease of this Backend that was not downgraded, into the detached lease with that id, which lasts for the
	// given time from now. l has then ended: it is not renewed, and Release returns nil. Lost is not closed. Places stay. Use an id once.
	//
	// After an error nothing is detached, and the lock is released: at once, or in the background, or at the latest when both leases would have
	// expired. The error Is ErrLeaseLost if l had been lost. A wrong argument is an error, too, and leaves l as it is: another lease, an id that
	// is not 16 to 64 letters, digits, dashes and underscores, or less than MinTTL.
	Detach(ctx context.Context, l Lease, id string, lasts time.Duration) error
	// Adopt turns the detached lease with that id into one of req, which is exclusive, waits for nothing and has no Prev. There is no gap, and
	// all fences are above the earlier ones. As after Enter, the lease lasts for ClaimWindow(req.TTL) before it is renewed. The error Is
	// ErrLeaseLost if there is no such lease: it was adopted or discarded, has expired, or was broken. After ErrUnavailable, or when ctx ends
	// first, it may have been adopted, and then it is released.
	Adopt(ctx context.Context, req Request, id string) (Lease, error)
	// Discard releases the detached lease with that id, as Release does. Only Key, Instance and TTL of req count: which lock, who asks, and for
	// how long Discard continues in the background if there is no answer.
	Discard(ctx context.Context, req Request, id string) error
}

// TransfererOf returns the Transferer of b, or of the backends that b wraps: a decorator has a method Unwrap() Backend.
func TransfererOf(b Backend) (Transferer, bool) { return inside[Transferer](b) }

// detachedName begins the name that stands for an instance where a lease is detached. No Locker's begins so.
const detachedName = "detached~"

// DetachedName returns the name that stands in place of an instance while the lease with that id is detached.
func DetachedName(id string) string { return detachedName + id }

// Detached reports whether the lease is detached: no instance has it, and it waits to be adopted.
func (h Holder) Detached() bool { return strings.HasPrefix(h.Instance, detachedName) }
