package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestAcquireHoldsUntilReleased(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	k, err := l.Acquire(t.Context(), "n", "k")
	require.NoError(t, err)
	h, ok := wllock.HeldFrom(k.Context())
	require.True(t, ok)
	require.Equal(t, k.Fence(), h.Fence())
	require.NoError(t, k.Err())
	require.ErrorIs(t, other.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
	require.NoError(t, k.Release(t.Context()))
	require.ErrorIs(t, k.Err(), wllock.ErrLeaseLost, "it is no longer held")
	require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "the backend has answered")
}

func TestSecondReleaseDoesNothing(t *testing.T) {
	l, _ := newLocker(t)
	k, err := l.Acquire(t.Context(), "n", "k")
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	defer hold(t, l, "n", "k")()
	require.NoError(t, k.Release(t.Context()))
	require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
}

func TestReleaseOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		k, err := l.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		b.Expire("test:n:k")
		<-k.Context().Done()
		require.ErrorIs(t, context.Cause(k.Context()), wllock.ErrLeaseLost)
		defer hold(t, l, "n", "k")()
		lostAfter(t, k.Release(t.Context()))
		lostAfter(t, k.Release(t.Context()))
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
	})
}

func TestReleaseThatTheBackendDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		k, err := l.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		b.Partition(true)
		require.ErrorIs(t, k.Release(t.Context()), wllock.ErrUnavailable)
		b.Partition(false)
		other := lockerOn(t, b)
		require.Eventually(t, func() bool { // it may have been decided meanwhile that the backend is away
			return other.Do(t.Context(), "n", "k", nothing) == nil
		}, ttl, time.Millisecond)
	})
}

func TestNestedAcquireIsPartOfTheHold(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		k, err := l.Acquire(ctx, "n", "k", wllock.NoWait())
		require.NoError(t, err)
		h, _ := wllock.HeldFrom(ctx)
		require.Equal(t, h.Fence(), k.Fence())
		require.NoError(t, k.Release(ctx))
		return h.Err()
	}))
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}
