// Package wllocktest gives the tests of applications a Locker without a server, and simulates what is hard to reproduce. That includes a
// key held by another caller, a lost lease, and a backend that is unreachable or does not answer.
//
//	func TestOrder(t *testing.T) {
//		shop := NewShop(wllocktest.New(t))
//		...
//	}
//
// The Lockers are closed when the test ends. If a lock is still held then, the test fails and names the keys. Everything works inside a
// testing/synctest bubble, where waiting for a lease to expire takes no time.
package wllocktest

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// System is the first part of the names of all locks of these Lockers.
const System = "test"

const (
	// grace is how long functions that hold a lock at the end of the test may take to return: enough for those that end with
	// the test's context, and short for a test that has forgotten one.
	grace = time.Second
	// patience is how long Hold waits for a lock: a longer hold would not end.
	patience = 10 * time.Second
	// faultyTTL is the lease TTL of Lockers with faults. A loss is noticed at the next renewal, TTL/3 later, and a partition
	// after one TTL: with the default of 5 s a test outside a bubble would wait that long.
	faultyTTL = time.Second
)

// New returns a new Locker for the test, with its locks in memory.
func New(t testing.TB, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	return newLocker(t, newBackend(t), opts)
}

// Hold acquires the lock name, key of l, as a caller that competes with the code under test, and returns a function that releases it. The lock
// is released at the end of the test at the latest. The test fails if the lock cannot be acquired. If the name has [wllock.Permits], Hold
// acquires one permit.
func Hold(t testing.TB, l *wllock.Locker, name, key string) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // which ends before the clean-up
	// However long the code under test waits, the lock is not taken away.
	lock, err := l.Acquire(ctx, name, key, wllock.WithWait(patience), wllock.WithLockTimeMax(0))
	if err != nil {
		t.Fatalf("wllocktest: hold: %v", err)
	}
	release = func() { _ = lock.Release(ctx) } // fails only if the lock was lost, or released before
	t.Cleanup(release)
	return release
}

func newBackend(t testing.TB) *memlock.Backend {
	t.Helper()
	b := memlock.New()
	t.Cleanup(func() { _ = b.Close() }) // never fails
	return b
}

func newLocker(t testing.TB, b distributed.Backend, opts []wllock.Option) *wllock.Locker {
	t.Helper()
	l, err := wllock.New(System, b, opts...)
	if err != nil {
		t.Fatalf("wllocktest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("wllocktest: at the end of the test %s still held: %v", held(l.Locks(math.MaxInt)), err)
		}
	})
	return l
}

// held lists the locks that are held.
func held(all []wllock.LockInfo) string {
	var keys []string
	for _, lock := range all {
		if lock.Holders > 0 {
			keys = append(keys, strconv.Quote(lock.Key))
		}
	}
	switch len(keys) {
	case 0:
		return "no lock is"
	case 1:
		return keys[0] + " is"
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ") + " are"
}
