package wllocktest

import (
	"testing"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Faults is what can go wrong behind the Lockers of one test. Its methods may be called by any goroutine, but Process
// like t.Fatal only by the test's own.
type Faults struct {
	t       testing.TB
	backend *memlock.Backend
}

// NewWithFaults is New, and a way to disturb the Locker. Its lease TTL is 1s unless the options say otherwise.
func NewWithFaults(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *Faults) {
	t.Helper()
	f := &Faults{t: t, backend: newBackend(t)}
	return f.Process(opts...), f
}

// Process returns another Locker on the same backend: what another process of the application would have.
func (f *Faults) Process(opts ...wllock.Option) *wllock.Locker {
	f.t.Helper()
	return newLocker(f.t, f.backend, append([]wllock.Option{wllock.WithLeaseTTL(faultyTTL)}, opts...))
}

// Lose makes the backend forget who holds the lock, as after a restart without its data. The next in the queue gets it;
// the function that believes it holds it finds its context ended, with the cause wllock.ErrLeaseLost, within a third
// of the lease TTL.
func (f *Faults) Lose(name, key string) { f.backend.Expire(System + ":" + name + ":" + key) }

// Partition cuts all Lockers off from the backend until Heal. New callers get wllock.ErrUnavailable, and leases that
// are held are lost when they run out.
func (f *Faults) Partition() { f.backend.Partition(true) }

// Heal ends a Partition.
func (f *Faults) Heal() { f.backend.Partition(false) }
