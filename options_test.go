package wllock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestOptionsCallBeatsNameBeatsDefaultsLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t,
			wllock.WithDefaults(wllock.WithWait(time.Second)),
			wllock.WithName("quick", wllock.WithWait(100*time.Millisecond)),
			wllock.WithName("quick", wllock.WithLockTimeMax(time.Minute)))
		for _, name := range []string{"quick", "other"} {
			defer hold(t, l, name, "k", wllock.WithLockTimeMax(0))()
		}
		waited := func(name string, opts ...wllock.CallOption) time.Duration {
			begin := time.Now()
			require.Error(t, l.Do(t.Context(), name, "k", never(t), opts...))
			return time.Since(begin)
		}
		require.Equal(t, time.Second, waited("other"))
		require.Equal(t, 100*time.Millisecond, waited("quick"))
		require.Equal(t, 50*time.Millisecond, waited("quick", wllock.WithWait(50*time.Millisecond)))
		require.Zero(t, waited("quick", wllock.WithWait(time.Hour), wllock.NoWait()))
		require.Equal(t, time.Millisecond, waited("quick", wllock.NoWait(), wllock.WithWait(time.Millisecond)))
	})
}

func TestSyncReleaseReturnsAfterTheAnswer(t *testing.T) {
	l, b := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.SyncRelease()))
	require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

// TestLongestTimes: the largest duration is as good as no limit.
func TestLongestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithLeaseTTL(math.MaxInt64), wllock.WithLinger(math.MaxInt64), wllock.WithMaxTenure(math.MaxInt64))
		for range 3 {
			require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return ctx.Err()
			}, wllock.WithLockTimeMax(math.MaxInt64), wllock.WithWait(math.MaxInt64)))
			require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(1)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		release := hold(t, l, "n", "k", wllock.WithLockTimeMax(math.MaxInt64))
		done := make(chan error)
		go func() { done <- l.Do(ctx, "n", "k", nothing, wllock.WithWait(math.MaxInt64)) }()
		time.Sleep(time.Hour)
		release()
		require.NoError(t, <-done)
		cancel()
	})
}

func TestWrongOptionsAreAllNamedAtOnce(t *testing.T) {
	_, err := wllock.New("bad system", nil, wllock.WithLeaseTTL(time.Millisecond), wllock.WithMaxHandoffs(-1),
		wllock.WithMaxTenure(0), wllock.WithLinger(-1), wllock.WithOutage(2), wllock.WithThreshold(-2),
		wllock.WithName("a:b"), wllock.WithName("n", wllock.WithWait(-1)), wllock.WithLogger(nil))
	for _, part := range []string{"bad system", "backend", "WithLeaseTTL", "WithMaxHandoffs", "WithMaxTenure", "WithLinger",
		"WithOutage", "WithCallThreshold(-2)", "a:b", "WithWait", "WithLogger"} {
		require.ErrorContains(t, err, part)
	}
}

func TestWrongCallOptionIsRefusedAtTheCall(t *testing.T) {
	l, _ := newLocker(t)
	require.ErrorContains(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithLockTimeMax(-1)), "WithLockTimeMax")
	require.ErrorContains(t, l.SetThreshold("n", -2), "-2")
	require.ErrorIs(t, l.SetThreshold("a:b", 2), wllock.ErrInvalidKey)
}
