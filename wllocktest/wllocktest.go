// Package wllocktest gives tests of applications a Locker that needs no server, and makes happen what is hard to wait
// for: a key that somebody else holds, a lease that is lost, a backend that is away.
//
//	func TestOrder(t *testing.T) {
//		shop := NewShop(wllocktest.New(t))
//		...
//	}
//
// The Lockers are closed when the test ends, and the test fails if it leaves a lock held. Everything works inside a
// testing/synctest bubble, where it takes no time to wait for a lease to run out.
package wllocktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// System is the first part of the names of all locks of this package's Lockers.
const System = "test"

const (
	// grace is what functions that still hold a lock when the test ends are given to come back: enough for those that
	// end with the test's context, little for a test that has forgotten one.
	grace = time.Second
	// patience is how long Hold waits for a lock: whoever has it for longer will not let go of it.
	patience = 10 * time.Second
	// faultyTTL is the lease TTL of Lockers with faults. A loss is noticed at the next renewal, TTL/3 later, and a cut
	// after one TTL: with the default of 5 s a test outside a bubble would have to wait for that long.
	faultyTTL = time.Second
)

// New returns a Locker of its own for the test, with its locks in memory.
func New(t testing.TB, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	return newLocker(t, newBackend(t), opts)
}

// Hold takes the lock name, key of l, as somebody does who is in the way of what is to be tested, and returns what
// gives it back; at the latest that is done when the test ends. The test fails if the lock cannot be had.
func Hold(t testing.TB, l *wllock.Locker, name, key string) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // which ends before the clean-up
	lock, err := l.Acquire(ctx, name, key, wllock.WithWait(patience))
	if err != nil {
		t.Fatalf("wllocktest: hold: %v", err)
	}
	release = func() { _ = lock.Release(ctx) } // fails only if the lock was lost, or given back before
	t.Cleanup(release)
	return release
}

func newBackend(t testing.TB) *memlock.Backend {
	t.Helper()
	b := memlock.New()
	t.Cleanup(func() { _ = b.Close() }) // never fails
	return b
}

func newLocker(t testing.TB, b *memlock.Backend, opts []wllock.Option) *wllock.Locker {
	t.Helper()
	l, err := wllock.New(System, b, opts...)
	if err != nil {
		t.Fatalf("wllocktest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("wllocktest: at the end of the test %s still held: %v", held(l.Stats()), err)
		}
	})
	return l
}

// held says how many locks of each name are held.
func held(s wllock.Stats) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Names)) {
		if n := s.Names[name].Held; n > 0 {
			names = append(names, fmt.Sprintf("%d of %s", n, name))
		}
	}
	if len(names) == 0 {
		return "no lock is"
	}
	return "locks (" + strings.Join(names, ", ") + ") are"
}
