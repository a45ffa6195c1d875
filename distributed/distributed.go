package distributed

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// The errors of a Backend. Match them with errors.Is. The error of the backend's own client is wrapped beside them.
var (
	// ErrHeld answers an Enter with NoWait when another instance holds the lock or is queued for it.
	ErrHeld = keyless.Errorf("lock is held by another")
	// ErrLeaseLost says that a lease has ended: expired, taken away, or never known to the backend.
	ErrLeaseLost = keyless.Errorf("lease lost")
	// ErrUnavailable says that the backend could not be reached, did not answer in time, or refused to work.
	ErrUnavailable = keyless.Errorf("lock backend unavailable")
	// ErrInvalidKey answers for a key that this backend does not allow.
	ErrInvalidKey = keyless.Errorf("invalid lock name")
	// ErrClosed answers every call on a closed Backend.
	ErrClosed = keyless.Errorf("lock backend is closed")
)

// Mode says how a lock is requested.
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

// Backend is the distributed tier: a service that all instances share, which grants leases in the order of the requests.
//
// A Backend serves several instances (Lockers) and all their keys, and is safe for concurrent use. One instance has at most one contender per
// key, which the tenure above ensures. Package keepalive renews the leases of a Backend, and locktest tests it.
type Backend interface {
	// Enter asks for the lock and returns after one bounded exchange, with a lease or with a place in the queue, never with both. With
	// req.NoWait it returns ErrHeld instead of a place. It returns a lease only when no instance is queued before the caller.
	//
	// When ctx ends first, or the answer is lost, Enter returns an error and ensures that nothing of the request remains for longer than
	// ClaimWindow(req.TTL), or over a slow network than req.TTL. Enter releases req.Prev first in any case, even if the answer is ErrHeld or a
	// place. After another error req.Prev may or may not have been released.
	Enter(ctx context.Context, req Request) (Lease, Place, error)
	// Ping returns nil when the backend answers and can do its work, otherwise an error that Is ErrUnavailable and says why not.
	Ping(ctx context.Context) error
	// Close ends all renewals and waits for background tasks. Leases that are still held expire. Close leaves all places, and their waiters find
	// them lost. After Close every call returns ErrClosed. Repeated calls do nothing.
	Close() error
}

// Request is the argument of Enter.
type Request struct {
	Key      string        // the full name, system:name:key
	Instance string        // the Locker that asks. A backend may serve several
	Mode     Mode          // Exclusive or Shared
	TTL      time.Duration // of the lease once it is claimed, at least MinTTL
	NoWait   bool          // a lease now, or ErrHeld. No place is taken
	// Limit makes a Shared lease one of several permits. It is granted when no instance is queued before the caller and fewer than Limit shared
	// leases of the key are held, whatever limit those were granted with. Expired leases do not count. Until then the head of the queue holds up
	// all behind it, also those with a larger limit. 0: no limit. An Exclusive request has none.
	Limit int
	// QueueMost makes Enter return ErrHeld instead of a place behind that many instances or more. A repeated request that has a place keeps it.
	// Instances that died in the queue count until it has passed them. 0: any number. A backend that cannot count returns an error that Is
	// errors.ErrUnsupported.
	QueueMost int
	Prev      Lease // a lease of this instance and key that Enter releases first, in the same exchange, or nil
}

// CheckLimit returns an error if Limit or QueueMost is out of range for every backend.
func (r *Request) CheckLimit() error {
	switch {
	case r.Limit < 0:
		return keyless.Errorf("a limit of %d leases: want 0 or more", r.Limit)
	case r.Limit > 0 && r.Mode != Shared:
		return keyless.Errorf("a limit of %d leases: an %v request has none", r.Limit, r.Mode)
	case r.QueueMost < 0:
		return keyless.Errorf("a queue of at most %d instances: want 0 (any number) or more", r.QueueMost)
	}
	return nil
}

// Unlimited returns an error, which Is errors.ErrUnsupported, if the request has a Limit. It is for backends without permits. Without it they
// would ignore the Limit and admit too many.
func (r *Request) Unlimited() error {
	if r.Limit == 0 {
		return nil
	}
	return keyless.Errorf("permits (a limit of %d leases): %w by this backend", r.Limit, errors.ErrUnsupported)
}

// Place is a position in the backend's queue for one key.
type Place interface {
	// Granted delivers the lease once, through a buffer. The grant does not wait for its receiver, whose claim window runs from the grant. An
	// unread grant is not claimed, so an absent receiver delays others by no more than that window (rule K5). If the channel is closed without a
	// lease, the place was lost: enter again.
	Granted() <-chan Lease
	// Leave leaves the place and releases a grant that arrived meanwhile, even one that is unread in Granted. After that Granted delivers
	// nothing and is not closed either. A lease that was received belongs to its receiver, and Leave does not touch it. Leave returns nil when
	// the place is gone, also if it was gone before.
	Leave(ctx context.Context) error
	// Holder names the holder, as far as the waiter knows it from answers that it gets anyway. Of several holders it names one, and how many
	// more there are. It is "" if the holder is not known.
	Holder() string
}

// Lease is the time-limited right of one instance to one key. A backend's lease embeds keepalive.Lease, which keeps its time, and adds fences,
// Downgrade and the two releases. A decorator or a fake embeds a Lease. If it overrides Release, it must override StartRelease as well, because
// the tenure uses both.
//
// All methods are safe for concurrent use. All but Refill, Downgrade and Release return at once.
type Lease interface {
	// NextFence returns the next fencing token, a number greater than any returned before for this key, over all instances. A Shared lease has
	// one fence, above every earlier writer's and below every later one's, and returns it each time. Only a Shared lease with a Limit has a
	// fence for each caller, like an Exclusive one. No other lease has the same fence, and each is above all fences of those leases that ended
	// before this one was granted. The fences of leases that are held at the same time have no order.
	//
	// ok is false when the lease's reserve is used up, or when this backend has no fences: Refill says which.
	NextFence() (fence uint64, ok bool)
	// Refill fetches more fences. It returns errors.ErrUnsupported when this backend has none.
	Refill(ctx context.Context) error

	// Until returns the time until which the lease is held at least, by this machine's clocks. Every renewal moves it.
	Until() time.Time
	// Healthy reports whether no renewal has failed or is overdue. An ended lease is not healthy.
	Healthy() bool
	// At is Until and Healthy in one, for a caller that has read the clock. left is by the clock that leaves less.
	At(now time.Time) (left time.Duration, healthy bool)
	// RenewBy moves the next renewal forward to the given time. It does nothing if a renewal is under way or comes earlier, or if the lease is
	// no longer renewed.
	RenewBy(at time.Time)
	// LostError says why the latest renewal failed, or why a lost lease was lost. nil: the latest renewal has not failed, or there was none yet.
	LostError() *LostError

	// Contended reports whether another instance waits for this key. It changes both ways, at once, or with the next renewal if a message is
	// lost.
	Contended() bool
	// Wanted reports whether another instance has requested the lock with NoWait since the lease was granted, and was refused. It also reports
	// that a client which cannot say so may want the lock. It stays true. The user serves its own callers with the lease as before, and does not
	// keep the lease when it is idle. Not every backend supports it.
	Wanted() bool
	// HearsRefusals reports whether a refused request with NoWait makes Wanted true at once. Otherwise that comes late, or never.
	HearsRefusals() bool

	// Downgrade turns an exclusive lease into a shared one, without a gap, and the readers at the head of the queue are granted theirs. From the
	// call on, the user of the lease admits readers only, and NextFence returns the one fence of a shared lease. After an error other than
	// ErrLeaseLost the lease is shared or exclusive: it is renewed and released as what it is. Downgrade does nothing to a shared lease.
	Downgrade(ctx context.Context) error

	// Watch sets the one Watcher. Call it once per lease. It reports earlier events at once. The Watcher receives as, the lease as its user
	// knows it, which may be a wrapper of this one.
	Watch(w Watcher, as Lease)
	// Abandon stops the renewals: the lease expires, and then Lost is closed.
	Abandon()
	// Lost is closed as soon as the lease is known to be gone, or must be assumed gone. Release never closes it.
	Lost() <-chan struct{}
	// Release releases the lease and waits for the answer. It returns ErrLeaseLost if the lease had been lost, and nil if it was already
	// released. It never touches another instance's lease. After ErrUnavailable, or when ctx ends first, the backend continues to try in the
	// background until the lease has expired.
	Release(ctx context.Context) error
	// StartRelease is Release without waiting. true: the lease is released. false: the answer goes to the Watcher, possibly before StartRelease
	// returns.
	StartRelease() bool
}

// Watcher receives the events of a lease, so that no goroutine has to wait for them. Calls come from any goroutine, possibly
// before the method that caused them has returned, and must not block.
type Watcher interface {
	LeaseLost(Lease)            // Lost has been closed
	LeaseContended(Lease)       // Contended or Wanted has changed: call them
	LeaseReleased(Lease, error) // the answer to StartRelease
	// LeaseRenewed is called when a renewal has been answered (nil), and for each try that was not (an error that Is ErrUnavailable). sent is
	// when it was sent, or zero if that is not known. The outage policy treats an error as evidence that the backend is away. So do not report
	// an answer that refuses one lease as an error.
	LeaseRenewed(l Lease, sent time.Time, err error)
}

// As finds the first lease that is a T in l and the leases that l wraps, as errors.As does for errors: a wrapper has a method Unwrap() Lease. A
// backend uses it to find its own lease in Request.Prev, so that its leases can be decorated.
func As[T any](l Lease) (T, bool) { return inside[T](l) }

// inside finds the first T in x and what that wraps.
func inside[T, W any](x W) (T, bool) {
	for at := any(x); at != nil; {
		if t, ok := at.(T); ok {
			return t, true
		}
		w, ok := at.(interface{ Unwrap() W })
		if !ok {
			break
		}
		at = w.Unwrap()
	}
	var none T
	return none, false
}
