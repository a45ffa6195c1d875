package wllocktest

import (
	"testing"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Faults provokes faults behind the Lockers of one test. Its methods may be called by any goroutine, except Process, which
// like t.Fatal belongs to the test's own.
type Faults struct {
	t       testing.TB
	backend *memlock.Backend
}

// NewWithFaults is New with a way to provoke faults. The lease TTL is 1s unless the options set another.
func NewWithFaults(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *Faults) {
	t.Helper()
	f := &Faults{t: t, backend: newBackend(t)}
	return f.Process(opts...), f
}

// Process returns another Locker on the same backend, as another process of the application would have.
func (f *Faults) Process(opts ...wllock.Option) *wllock.Locker {
	f.t.Helper()
	return newLocker(f.t, f.backend, append([]wllock.Option{wllock.WithLeaseTTL(faultyTTL)}, opts...))
}

// Lose makes the backend forget the holder of the lock, as a restart without its data would. The next in the queue gets it;
// the context of the function that held it ends within a third of the lease TTL, with the cause wllock.ErrLeaseLost.
func (f *Faults) Lose(name, key string) { f.backend.Expire(System + ":" + name + ":" + key) }

// Partition disconnects all Lockers from the backend until Heal. New callers get wllock.ErrUnavailable, and held leases are
// lost when they expire.
func (f *Faults) Partition() { f.backend.Partition(true) }

// Heal ends a Partition.
func (f *Faults) Heal() { f.backend.Partition(false) }
