package distributed

import (
	"context"
	"errors"
	"time"
)

// The errors a Backend answers with, for use with errors.Is. What a backend's own client said is wrapped beside them.
var (
	// ErrHeld answers an Enter with NoWait when somebody else holds the lock or is queued for it.
	ErrHeld = errors.New("lock is held by another")
	// ErrLeaseLost says that a lease is over: expired, taken away, or never known to the backend.
	ErrLeaseLost = errors.New("lease lost")
	// ErrUnavailable says that the backend could not be reached, did not answer in time, or refused to work.
	ErrUnavailable = errors.New("lock backend unavailable")
	// ErrClosed answers every call on a closed Backend.
	ErrClosed = errors.New("lock backend is closed")
)

// Mode says how a lock is asked for.
type Mode uint8

const (
	// Exclusive admits one holder at a time.
	Exclusive Mode = iota
	// Shared admits any number of shared holders, and no exclusive one beside them.
	Shared
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// Backend is the distributed tier: something all instances share that gives leases in the order they were asked for.
//
// A Backend serves several instances (Lockers) and all their keys, and is safe for concurrent use. One instance has at
// most one contender per key; the tenure above sees to that. Implementations embed Term in their leases, renew them
// with a Keeper, and pass the suite in distributed/locktest.
type Backend interface {
	// Enter asks for the lock and returns after one bounded exchange: with a lease, or with a place in the queue
	// (never with both; with req.NoWait never with a place: ErrHeld). A lease is returned only when nobody is queued
	// before the caller.
	//
	// When ctx ends first, or the answer is lost, Enter returns an error and sees to it that nothing of the request
	// stays behind longer than ClaimWindow(req.TTL). req.Prev is given up first in any case, also when the answer
	// is ErrHeld or a place; after another error it may or may not have been.
	Enter(ctx context.Context, req Request) (Lease, Place, error)
	// Ping returns nil when the backend answers and can do its work, else an error that Is ErrUnavailable and says why not.
	Ping(ctx context.Context) error
	// Close ends all renewals and waits for what runs in the background. Leases that are still held run out by
	// themselves; places are given up, and lost to whoever waits. After it every call returns ErrClosed. Repeated calls
	// do nothing.
	Close() error
}

// Request is what Enter is asked.
type Request struct {
	Key      string        // the full name, system:name:key
	Instance string        // who asks: one Locker; a backend may serve several
	Mode     Mode          // Exclusive or Shared
	TTL      time.Duration // of the lease once claimed, at least MinTTL
	NoWait   bool          // now or never: no place is taken
	Prev     Lease         // a lease of this instance and key that Enter gives up first, in the same exchange; nil: none
}

// Place is a position in the backend's queue for one key.
type Place interface {
	// Granted delivers the lease once, through a buffer: the grant does not wait for its receiver, whose claim window
	// runs from the grant. While it lies unread it is not claimed, so a receiver that is away costs others no more than
	// that window. Closed without a lease: the place was lost, enter again.
	Granted() <-chan Lease
	// Leave gives up the place, and a grant that arrived meanwhile, also one that lies unread in Granted. After it
	// nothing is delivered and Granted stays silent. A lease that was received is its receiver's and is left alone. It
	// returns nil when the place is gone, also if it was before.
	Leave(ctx context.Context) error
}

// Lease is the time-limited right of one instance to one key.
// All methods are safe for concurrent use and, but for Refill and Release, return at once.
type Lease interface {
	// NextFence returns a number greater than any given before for this key, over all instances. A Shared lease has one
	// fence, above every earlier writer's and below every later one's, and returns it each time.
	// ok is false when the lease's reserve is used up, or when this backend has no fences: Refill says which.
	NextFence() (fence uint64, ok bool)
	// Refill fetches more fences. It returns errors.ErrUnsupported when this backend has none.
	Refill(ctx context.Context) error
	// Until is the time up to which the lease is held at least, by this machine's clocks. It moves with every renewal.
	Until() time.Time
	// Healthy reports that no renewal has failed or is unanswered past its time. A lease that is over is not healthy.
	Healthy() bool
	// Contended reports that another instance waits for this key; once true for a lease, it stays true.
	Contended() bool
	// Abandon stops the renewals: the lease runs out by itself, and Lost is closed when it has.
	Abandon()
	// Lost is closed as soon as the lease is known, or must be assumed, gone; never because of Release.
	Lost() <-chan struct{}
	// Release gives the lease back and waits for the answer. Of a lease that was lost before it returns ErrLeaseLost;
	// again after a release that was answered, nil. It never touches a lease of anybody else.
	// After ErrUnavailable, or when ctx ends first, the backend goes on trying in the background until the lease is over.
	Release(ctx context.Context) error
}
