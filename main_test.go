package wllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ttl is T in the tests of time, which run on the clock of testing/synctest.
const ttl = time.Second

// newLocker returns a Locker over a memory backend of its own.
func newLocker(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *memlock.Backend) {
	t.Helper()
	b := memlock.New()
	return lockerOn(t, b, opts...), b
}

// lockerOn returns a Locker over b that is closed at the end of the test.
func lockerOn(t testing.TB, b distributed.Backend, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	l, err := wllock.New("test", b, append([]wllock.Option{wllock.WithLeaseTTL(ttl)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// hold acquires a lock and returns what releases it.
func hold(t testing.TB, l *wllock.Locker, name, key string, opts ...wllock.CallOption) (release func()) {
	t.Helper()
	k, err := l.Acquire(context.Background(), name, key, opts...)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, k.Release(context.Background()))
	}
}

// nothing is a function to guard.
func nothing(context.Context) error { return nil }

// never is a function that must not be run.
func never(t testing.TB) wllock.Func {
	return func(context.Context) error {
		t.Error("the function was run without the lock")
		return nil
	}
}
