package distributed

import (
	"context"
	"sync"
	"time"
)

// Watcher is told of what happens to a lease that nobody is asking about at the moment. Calls come from any goroutine,
// possibly before the method that caused them has returned, and must not block.
type Watcher interface {
	LeaseLost(Watched)            // Lost has been closed
	LeaseWanted(Watched)          // Contended has become true
	LeaseReleased(Watched, error) // the answer to StartRelease
}

// RenewalWatcher is an optional ability of a Watcher: it is told how renewals go as well. A lease that embeds Term
// tells it.
type RenewalWatcher interface {
	Watcher
	// LeaseRenewed is called when a renewal has been answered (nil), and for each try that had no answer (an error that
	// Is ErrUnavailable). sent is when it left; zero: not known.
	LeaseRenewed(l Watched, sent time.Time, err error)
}

// Watched is an optional ability of a Lease: to call back, so that its user needs no goroutine per lease. Leases that
// embed Term and add StartRelease have it; AsWatched adds it to any other.
type Watched interface {
	Lease
	// Watch names the one Watcher; it is called once per lease. What has happened before is told at once.
	Watch(Watcher)
	// At is Until and Healthy in one, for a caller who knows what time it is: the time left, by the clock that leaves less.
	At(now time.Time) (left time.Duration, healthy bool)
	// StartRelease is Release without waiting: it returns at once. true: the lease is back already, and that was all.
	// false: the answer goes to the Watcher, maybe before StartRelease returns.
	StartRelease() bool
}

// AsWatched returns l with the abilities of Watched. A lease that does not have them by itself gets a goroutine when it
// is watched, which ends with the lease; of such a lease the Watcher is not told that it is wanted.
func AsWatched(l Lease) Watched {
	if w, ok := l.(Watched); ok {
		return w
	}
	return &attended{Lease: l, released: make(chan struct{})}
}

// Unwatched returns the lease as its backend made it: what a Request names as Prev.
func Unwatched(l Watched) Lease {
	if a, ok := l.(*attended); ok {
		return a.Lease
	}
	return l
}

// GivenUp ends what waits for news of l, which an Enter has given up that named it as Prev.
func GivenUp(l Watched) {
	if a, ok := l.(*attended); ok {
		a.end()
	}
}

// attended adds the abilities of Watched to a plain Lease, at the price of a goroutine.
type attended struct {
	Lease
	watcher  Watcher
	once     sync.Once
	released chan struct{} // closed when a release begins, or another has given the lease up
}

func (a *attended) Watch(w Watcher) {
	a.watcher = w
	go a.attend()
}

func (a *attended) At(now time.Time) (time.Duration, bool) { return Left(now, a.Until()), a.Healthy() }

func (a *attended) attend() {
	select {
	case <-a.Lost():
		a.watcher.LeaseLost(a)
	case <-a.released:
	}
}

func (a *attended) Release(ctx context.Context) error {
	a.end()
	return a.Lease.Release(ctx)
}

func (a *attended) end() { a.once.Do(func() { close(a.released) }) }

func (a *attended) StartRelease() bool {
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), a.Until()) // later it is over anyway
		defer cancel()
		a.watcher.LeaseReleased(a, a.Release(ctx))
	}()
	return false
}
