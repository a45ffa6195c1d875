package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestHeldReportsWaitsAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		first, err := other.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		time.AfterFunc(200*time.Millisecond, func() { _ = first.Release(context.Background()) })
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, ok := wllock.HeldFrom(ctx)
			require.True(t, ok)
			require.Greater(t, h.Fence(), first.Fence())
			require.Zero(t, h.LocalWait())
			require.Equal(t, 200*time.Millisecond, h.DistributedWait())
			require.False(t, h.Handoff())
			require.False(t, h.Degraded())
			require.Positive(t, time.Until(h.Until()))
			require.NoError(t, h.Err())
			return nil
		}))
	})
}

func TestUntilMovesWithEveryRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			before := h.Until()
			time.Sleep(5 * ttl)
			require.Greater(t, h.Until().Sub(before), 4*ttl)
			return h.Err()
		}))
	})
}

func TestHeldErrLooksAtTheClockBeforeAnyTimer(t *testing.T) {
	l, b := newLocker(t, wllock.WithLeaseTTL(60*time.Millisecond))
	err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		b.Partition(true) // no renewal gets through
		require.NoError(t, h.Err())
		for time.Now().Before(h.Until()) {
			time.Sleep(time.Millisecond)
		}
		require.ErrorIs(t, h.Err(), wllock.ErrLeaseLost)
		return nil
	})
	b.Partition(false)
	lostAfter(t, err)
}
