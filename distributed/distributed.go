package distributed

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// The errors of a Backend. Match them with errors.Is. The error of the backend's own client is wrapped beside them.
var (
	// ErrHeld answers an Enter with NoWait when another holds the lock or is queued for it.
	ErrHeld = keyless.Errorf("lock is held by another")
	// ErrLeaseLost says that a lease has ended: expired, taken away, or never known to the backend.
	ErrLeaseLost = keyless.Errorf("lease lost")
	// ErrUnavailable says that the backend could not be reached, did not answer in time, or refused to work.
	ErrUnavailable = keyless.Errorf("lock backend unavailable")
	// ErrInvalidKey answers for a key that no lock of this backend may have.
	ErrInvalidKey = keyless.Errorf("invalid lock name")
	// ErrClosed answers every call on a closed Backend.
	ErrClosed = keyless.Errorf("lock backend is closed")
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

// Backend is the distributed tier: a service that all instances share, which grants leases in the order of the requests.
//
// A Backend serves several instances (Lockers) and all their keys, and is safe for concurrent use. One instance has at
// most one contender per key: the tenure above sees to that. Package keepalive renews the leases of a Backend, and
// locktest tests it.
type Backend interface {
	// Enter asks for the lock and returns after one bounded exchange, with a lease or with a place in the queue, never with
	// both. With req.NoWait it returns ErrHeld in place of a place. A lease is returned only when no instance is queued before
	// the caller.
	//
	// When ctx ends first, or the answer is lost, Enter returns an error and sees to it that nothing of the request
	// stays behind longer than ClaimWindow(req.TTL), or over a slow network than req.TTL. req.Prev is released first in any
	// case, also when the answer is ErrHeld or a place. After another error it may or may not have been released.
	Enter(ctx context.Context, req Request) (Lease, Place, error)
	// Ping returns nil when the backend answers and can do its work, else an error that Is ErrUnavailable and says why not.
	Ping(ctx context.Context) error
	// Close ends all renewals and waits for background tasks. Leases that are still held expire by themselves. Places
	// are left, and their waiters find them lost. After it every call returns ErrClosed. Repeated calls do nothing.
	Close() error
}

// Request is the argument of Enter.
type Request struct {
	Key      string        // the full name, system:name:key
	Instance string        // the Locker that asks: a backend may serve several
	Mode     Mode          // Exclusive or Shared
	TTL      time.Duration // of the lease once claimed, at least MinTTL
	NoWait   bool          // no place is taken: a lease now, or ErrHeld
	// Limit makes a Shared lease one of several permits. It is granted when no instance is queued before the caller and fewer
	// than Limit shared leases of the key are held, whatever limit those were granted with. Until then the head of the queue
	// holds up all behind it, also those with a larger limit. It counts no leases that have expired. 0: no limit. An Exclusive
	// request has none.
	Limit int
	// QueueMost has Enter return ErrHeld in place of a place behind that many instances or more. A repeat of a request that has a place
	// keeps it. Instances that died in the queue count until it has passed them. 0: any number. A backend that cannot count returns an
	// error that Is errors.ErrUnsupported.
	QueueMost int
	Prev      Lease // a lease of this instance and key that Enter releases first, in the same exchange, or nil
}

// CheckLimit returns an error if the Limit or QueueMost is one that no backend takes.
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

// Unlimited returns an error, which Is errors.ErrUnsupported, if the request has a Limit. It is for backends without permits:
// one that ignored the Limit would admit too many.
func (r *Request) Unlimited() error {
	if r.Limit == 0 {
		return nil
	}
	return keyless.Errorf("permits (a limit of %d leases): %w by this backend", r.Limit, errors.ErrUnsupported)
}

// Place is a position in the backend's queue for one key.
type Place interface {
	// Granted delivers the lease once, through a buffer: the grant does not wait for its receiver, whose claim window
	// runs from the grant. An unread grant is not claimed, so a receiver that is away delays others by no more than that
	// window (rule K5). Closed without a lease: the place was lost, enter again.
	Granted() <-chan Lease
	// Leave leaves the place and releases a grant that arrived meanwhile, also one that lies unread in Granted. After it
	// nothing is delivered and Granted is not closed either. A lease that was received belongs to its receiver and is
	// left alone. Leave returns nil when the place is gone, also if it was gone before.
	Leave(ctx context.Context) error
	// Holder names the holder, as far as the answers have told that the waiter gets anyway: of several one, and how many more
	// there are. It is "" if that is not known.
	Holder() string
}

// Lease is the time-limited right of one instance to one key. A backend's lease embeds keepalive.Lease, which sees to its time, and
// adds fences, Downgrade and the two releases. A decorator or a fake embeds a Lease: one who overrides Release overrides
// StartRelease as well, because the tenure uses both.
//
// All methods are safe for concurrent use. All but Refill, Downgrade and Release return at once.
type Lease interface {
	// NextFence returns the next fencing token, a number greater than any returned before for this key, over all
	// instances. A Shared lease has one fence, above every earlier writer's and below every later one's, and returns it
	// each time. Only one with a Limit has a fence for each caller, as an Exclusive one has. No other lease has the same, and
	// each is above all of those leases that ended before this one was granted. The fences of leases that are held at the
	// same time have no order.
	// ok is false when the lease's reserve is used up, or when this backend has no fences: Refill says which.
	NextFence() (fence uint64, ok bool)
	// Refill fetches more fences. It returns errors.ErrUnsupported when this backend has none.
	Refill(ctx context.Context) error

	// Until is the time up to which the lease is held at least, by this machine's clocks. Every renewal moves it.
	Until() time.Time
	// Healthy reports that no renewal has failed or is overdue. An ended lease is not healthy.
	Healthy() bool
	// At is Until and Healthy in one, for a caller that knows the time. left is by the clock that leaves less.
	At(now time.Time) (left time.Duration, healthy bool)
	// RenewBy moves the next renewal forward to the given time. It does nothing if one is under way or comes earlier, or if the
	// lease is not renewed any more.
	RenewBy(at time.Time)
	// LostError says why the latest renewal has failed. nil: it has not, or there was none yet. Of a lease that is lost it says why.
	LostError() *LostError

	// Contended reports that another instance waits for this key. It follows the truth both ways: at once, or when a
	// message is lost with the next renewal.
	Contended() bool
	// Wanted reports that another instance has asked for the lock with NoWait since the lease was granted, and was refused.
	// It also reports that a client may want the lock which cannot say so. It stays true. The user serves its own callers with
	// the lease as before, and does not keep it when it is idle. Not every backend tells.
	Wanted() bool
	// HearsRefusals reports that a request with NoWait which is refused makes Wanted true at once. Else that comes late, or never.
	HearsRefusals() bool

	// Downgrade makes an exclusive lease a shared one. The lease goes on without a moment in between, and the readers at the head
	// of the queue are granted theirs. From then on NextFence returns the one fence of a shared lease. From the call on its
	// user admits readers only. After an error other than ErrLeaseLost the lease is shared or exclusive: it is renewed and
	// released as what it is. It does nothing to a shared lease.
	Downgrade(ctx context.Context) error

	// Watch sets the one Watcher, and is called once per lease. Events of before are reported at once. The Watcher
	// receives as, the lease as its user knows it, which may be a wrapper of this one.
	Watch(w Watcher, as Lease)
	// Abandon stops the renewals: the lease expires by itself, and Lost is closed when it has.
	Abandon()
	// Lost is closed as soon as the lease is known, or must be assumed, gone. Release never closes it.
	Lost() <-chan struct{}
	// Release releases the lease and waits for the answer. It returns ErrLeaseLost if the lease had been lost, and nil if
	// it was already released. It never touches another's lease. After ErrUnavailable, or when ctx ends first, the
	// backend goes on trying in the background until the lease has expired.
	Release(ctx context.Context) error
	// StartRelease is Release without waiting. true: the lease is released. false: the answer goes to the Watcher,
	// maybe before StartRelease returns.
	StartRelease() bool
}

// Watcher receives the events of a lease, so that no goroutine has to wait for them. Calls come from any goroutine, possibly
// before the method that caused them has returned, and must not block.
type Watcher interface {
	LeaseLost(Lease)            // Lost has been closed
	LeaseContended(Lease)       // Contended has changed, or Wanted: ask it
	LeaseReleased(Lease, error) // the answer to StartRelease
	// LeaseRenewed is called when a renewal has been answered (nil), and for each try that was not (an error that Is
	// ErrUnavailable). sent is when it was sent, or zero if that is not known. The outage policy takes an error for evidence that the
	// backend is away, so an answer that says no to one lease is not to be reported as one.
	LeaseRenewed(l Lease, sent time.Time, err error)
}

// As finds the first lease that is a T in l and the leases it wraps, as errors.As does for errors: a wrapper has a method
// Unwrap() Lease. A backend finds its own lease in Request.Prev with it, so that its leases can be decorated.
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
