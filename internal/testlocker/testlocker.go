// Package testlocker has what the tests of package wllock and those of the whole stack begin with.
package testlocker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// TTL is T in the tests of time, which run on the clock of testing/synctest.
const TTL = time.Second

// New returns a Locker over a memory backend of its own.
func New(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *memlock.Backend) {
	t.Helper()
	b := memlock.New()
	return On(t, b, opts...), b
}

// On returns a Locker over b that is closed at the end of the test.
func On(t testing.TB, b distributed.Backend, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	l, err := wllock.New("test", b, append([]wllock.Option{wllock.WithLeaseTTL(TTL)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Hold acquires a lock and returns what releases it.
func Hold(t testing.TB, l *wllock.Locker, name, key string, opts ...wllock.CallOption) (release func()) {
	t.Helper()
	k, err := l.Acquire(context.Background(), name, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := k.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing is a function to guard.
func Nothing(context.Context) error { return nil }

// Never returns a function that must not be run.
func Never(t testing.TB) wllock.Func {
	return func(context.Context) error {
		t.Error("the function was run without the lock")
		return nil
	}
}

// LostAfter checks the error of a call whose lock was lost while its function ran.
func LostAfter(t testing.TB, err error) {
	t.Helper()
	var e *wllock.Error
	if !errors.Is(err, wllock.ErrLeaseLost) || !errors.As(err, &e) || !e.Ran || e.Tier != wllock.TierDistributed {
		t.Fatalf("%v; want a lease that was lost while the function ran", err)
	}
}
