package distributed

import (
	"context"
	"time"
)

// AsyncLease is an optional ability of a Lease: it calls back, so that its user needs no goroutine per lease. A lease
// that embeds keepalive.Lease and adds StartRelease has it. A lease without it costs its user a goroutine.
type AsyncLease interface {
	Lease
	// Watch sets the one Watcher, and is called once per lease. Events of before are reported at once. The Watcher
	// receives as, the lease as its user knows it, which may be a wrapper of this one.
	Watch(w Watcher, as Lease)
	// At is Until and Healthy in one, for a caller that knows the time. left is by the clock that leaves less.
	At(now time.Time) (left time.Duration, healthy bool)
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
}

// RenewalWatcher is an optional ability of a Watcher: it also receives the outcome of renewals, from leases that embed
// keepalive.Lease.
type RenewalWatcher interface {
	Watcher
	// LeaseRenewed is called when a renewal has been answered (nil), and for each try that was not (an error that Is
	// ErrUnavailable). sent is when it was sent, or zero if that is not known.
	LeaseRenewed(l Lease, sent time.Time, err error)
}

// Downgrader is an optional ability of a Lease: an exclusive lease becomes a shared one, so that readers of other instances
// may enter beside the readers that work under it.
type Downgrader interface {
	Lease
	// Downgrade makes the lease a shared one. The lease goes on without a moment in between, and the readers at the head of
	// the queue are granted theirs. From then on NextFence returns the one fence of a shared lease. From the call on its
	// user admits readers only. After an error other than ErrLeaseLost the lease is shared or exclusive: it is renewed and
	// released as what it is. It does nothing to a shared lease.
	Downgrade(ctx context.Context) error
}

// Wanted is an optional ability of a Lease: it says that others want it who do not wait for it. Leases that embed keepalive.Lease
// have it. Not every backend tells them.
type Wanted interface {
	Lease
	// Wanted reports that another instance has asked for the lock with NoWait since the lease was granted, and was refused.
	// It also reports that a client may want the lock which cannot say so. It stays true. Its user serves its own callers with the lease as before, and
	// does not keep it when it is idle.
	Wanted() bool
}

// LossTeller is an optional ability of a Lease: it tells why the lease could not be renewed. Leases that embed keepalive.Lease have it.
type LossTeller interface {
	Lease
	// LostError says why the latest renewal has failed. nil: it has not, or there was none yet. Of a lease that is lost it says why.
	LostError() *LostError
}

// LossOf returns the ErrLeaseLost of a lease that is lost: a *LostError if it tells why it was not renewed.
func LossOf(l Lease) error {
	if t, ok := As[LossTeller](l); ok {
		if e := t.LostError(); e != nil {
			return e
		}
	}
	return ErrLeaseLost
}

// As finds the first lease that is a T in l and the leases it wraps, as errors.As does for errors: a wrapper has a method
// Unwrap() Lease. A backend finds its own lease in Request.Prev with it, so that its leases can be decorated.
func As[T any](l Lease) (T, bool) {
	for l != nil {
		if t, ok := l.(T); ok {
			return t, true
		}
		w, ok := l.(interface{ Unwrap() Lease })
		if !ok {
			break
		}
		l = w.Unwrap()
	}
	var none T
	return none, false
}
