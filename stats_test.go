package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestHealthFollowsTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		require.True(t, l.Health().Available)
		time.Sleep(time.Minute)
		b.Partition(true)
		began := time.Now()
		for range 3 {
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable)
		}
		h := l.Health()
		require.False(t, h.Available)
		require.ErrorIs(t, h.Err, wllock.ErrUnavailable)
		require.WithinDuration(t, began, h.Since, 0)
		require.Equal(t, h, l.Stats().Backend)
		b.Partition(false)
		time.Sleep(3 * time.Second)
		require.True(t, l.Health().Available, "asked for by nobody")
		require.NoError(t, l.Health().Err)
	})
}

func TestStatsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		go func() { _ = l.Do(context.Background(), "n", "k", nothing) }()
		synctest.Wait()
		s := l.Stats()
		require.EqualValues(t, 1, s.Names["n"].Held)
		require.EqualValues(t, 1, s.Names["n"].Waiting)
		release()
		synctest.Wait()
		s = l.Stats()
		require.Zero(t, s.Total.Held)
		require.Zero(t, s.Total.Waiting)
		require.EqualValues(t, 2, s.Total.Acquired)
		require.EqualValues(t, 1, s.Total.Handoffs)
	})
}

func TestStatsHaveTheThresholds(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(7), wllock.WithName("own", wllock.WithCallThreshold(3)))
	for _, name := range []string{"n", "own"} {
		require.NoError(t, l.Do(t.Context(), name, "k", nothing))
	}
	require.Equal(t, 7, l.Stats().Names["n"].Threshold)
	require.Equal(t, 3, l.Stats().Names["own"].Threshold)
	require.Zero(t, l.Stats().Total.Threshold)
	require.NoError(t, l.SetThreshold("n", wllock.Unlimited))
	require.Equal(t, wllock.Unlimited, l.Stats().Names["n"].Threshold)
	require.Equal(t, "test", l.System())
}
