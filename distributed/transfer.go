package distributed

import (
	"context"
	"strings"
	"time"
)

// Transferer is an optional ability of a Backend: an exclusive lease can leave the instance that has it, and be adopted by another one later.
// In between the lease is detached: the lock stays taken, and no instance renews it. The service knows it by an id, which is no secret. To
// Inspect it is held by DetachedName(id).
type Transferer interface {
	Backend
	// Detach makes l, an exclusive lease of this Backend that was not downgraded, the detached lease of that id, which lasts for so long from now.
	// l has ended then: it is not renewed, and Release returns nil. Lost is not closed. Places stay. An id is used once.
	//
	// After an error nothing is detached, and the lock is released: at once, or in the background, or at the latest when both leases would have expired.
	// The error Is ErrLeaseLost if l had been lost. A wrong argument is an error, too, and leaves l as it is:
	// another lease, an id that is not 16 to 64 letters, digits, dashes and underscores, or less than MinTTL.
	Detach(ctx context.Context, l Lease, id string, lasts time.Duration) error
	// Adopt makes the detached lease of that id one of req, which is exclusive, waits for nothing and has no Prev. There is no moment in between,
	// and all fences are above those of before. As after Enter the lease lasts for ClaimWindow(req.TTL) before it is renewed.
	// The error Is ErrLeaseLost if there is no such lease: it was adopted or discarded, has expired, or was broken. After ErrUnavailable,
	// or when ctx ends first, it may have been adopted, and is released then.
	Adopt(ctx context.Context, req Request, id string) (Lease, error)
	// Discard releases the detached lease of that id, as Release does. Only Key, Instance and TTL of req count: which lock, who asks, and how
	// long that goes on in the background if there is no answer.
	Discard(ctx context.Context, req Request, id string) error
}

// TransfererOf finds the Transferer in b or in the backends that b wraps: a decorator has a method Unwrap() Backend.
func TransfererOf(b Backend) (Transferer, bool) { return inside[Transferer](b) }

// detachedName begins the name that stands for an instance where a lease is detached. No Locker's begins so.
const detachedName = "detached~"

// DetachedName is what stands in place of an instance where the lease with that id is detached.
func DetachedName(id string) string { return detachedName + id }

// Detached reports that no instance has the lease: it waits to be adopted.
func (h Holder) Detached() bool { return strings.HasPrefix(h.Instance, detachedName) }
