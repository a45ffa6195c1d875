package wllocktest

import (
	"context"
	"testing"

	"github.com/wllock/wllock"
)

// Faults provokes faults behind the Lockers of one test. Its methods may be called from any goroutine, except Process, which like t.Fatal must
// be called from the test's own.
type Faults struct {
	t       testing.TB
	backend *backend
}

// NewWithFaults is New with a Faults for the Locker. The lease TTL is 1s unless the options set another.
func NewWithFaults(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *Faults) {
	t.Helper()
	f := &Faults{t: t, backend: newHanging(t)}
	return f.Process(opts...), f
}

// Process returns another Locker on the same backend, as another process of the application would have.
func (f *Faults) Process(opts ...wllock.Option) *wllock.Locker {
	f.t.Helper()
	l := newLocker(f.t, f.backend, append([]wllock.Option{wllock.WithLeaseTTL(faultyTTL)}, opts...))
	f.t.Cleanup(func() { f.backend.hang(false) }) // before the Locker is closed, which waits for calls that hang
	return l
}

// Lose makes the backend forget the holder of the lock, as a restart without its data would. The next in the queue gets the lock. The context of
// the function that held it ends within a third of the lease TTL, with the cause wllock.ErrLeaseLost. If the lock has no holder, Lose fails the
// test.
func (f *Faults) Lose(name, key string) {
	f.t.Helper()
	full := System + ":" + name + ":" + key
	if found, err := f.backend.memory.Inspect(context.Background(), full); err == nil && !found.Held() { // an error: cut off, and not known
		f.t.Errorf("wllocktest: Lose(%q, %q): the lock has no holder", name, key)
	}
	f.backend.memory.Expire(full)
}

// Partition disconnects all Lockers from the backend until Heal, as if the server had stopped: new callers get wllock.ErrUnavailable at once,
// and held leases are lost when they expire.
func (f *Faults) Partition() {
	f.backend.memory.Partition(true)
	f.backend.hang(false)
}

// Hang is a Partition without an answer, as in a network that drops every packet. A call that asks the backend for the lock waits until Heal,
// the end of its wait, or half the lease TTL, and only then gets wllock.ErrUnavailable. Ping waits as well, but a release does not.
func (f *Faults) Hang() {
	f.backend.hang(true)
	f.backend.memory.Partition(true)
}

// Heal ends a Partition or a Hang.
func (f *Faults) Heal() {
	f.backend.memory.Partition(false)
	f.backend.hang(false)
}
