package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestLocksReportsHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		near, far := hold(t, l, "n", "near"), hold(t, other, "n", "far")
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"near", "near", "far"} {
			go func() { _ = l.Do(ctx, "n", key, never(t)) }()
		}
		synctest.Wait()
		time.Sleep(ttl / 10)
		all := l.Locks(10)
		require.Len(t, all, 2)
		held, wanted := all[0], all[1]
		require.Equal(t, "test:n:near", held.Key)
		require.Equal(t, 2, held.Waiting)
		require.Equal(t, 1, held.Holders)
		require.Equal(t, 1, held.Turns)
		require.Equal(t, ttl/10, held.HeldFor)
		require.Positive(t, held.Fence)
		require.Equal(t, "test:n:far", wanted.Key)
		require.True(t, wanted.AtBackend)
		require.Zero(t, wanted.Holders)
		require.Zero(t, wanted.Until)
		require.Len(t, l.Locks(1), 1)
		cancel()
		synctest.Wait()
		near()
		far()
		synctest.Wait()
		require.Empty(t, l.Locks(10))
	})
}

func TestLocksReportsLocksThatStayTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(context.Context) error {
			require.False(t, l.Locks(1)[0].Staying)
			return nil
		}, wllock.WithHoldAtLeast(least)))
		info := l.Locks(1)[0]
		require.True(t, info.Staying)
		require.Equal(t, 1, info.Holders)
	})
}
