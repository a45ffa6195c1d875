package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestThresholdsOfCallNameAndDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(1), wllock.WithName("wide", wllock.WithCallThreshold(3)))
		admitted := func(name string, opts ...wllock.CallOption) int {
			release := hold(t, l, name, "k")
			ctx, cancel := context.WithCancel(t.Context())
			refused := make(chan error, 10)
			for range 10 {
				go func() { refused <- l.Do(ctx, name, "k", never(t), opts...) }()
			}
			synctest.Wait()
			full := len(refused)
			for range full {
				require.ErrorIs(t, <-refused, wllock.ErrQueueFull)
			}
			cancel()
			synctest.Wait()
			release()
			return 10 - full
		}
		require.Equal(t, 1, admitted("n"))
		require.Equal(t, 3, admitted("wide"))
		require.Equal(t, 5, admitted("wide", wllock.WithCallThreshold(5)))
		require.Equal(t, 10, admitted("n", wllock.WithCallThreshold(wllock.Unlimited)))
		require.NoError(t, l.SetThreshold("", 2))
		require.NoError(t, l.SetThreshold("wide", 0))
		require.Equal(t, 2, admitted("n"))
		require.Equal(t, 0, admitted("wide"))
	})
}

func TestRetryAfterFollowsTheMeasuredTurnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(0))
		for range 50 {
			require.NoError(t, l.Do(t.Context(), "n", "any", func(context.Context) error {
				time.Sleep(20 * time.Millisecond)
				return nil
			}))
		}
		defer hold(t, l, "n", "k")()
		var e *wllock.Error
		require.ErrorAs(t, l.Do(t.Context(), "n", "k", never(t)), &e)
		require.InDelta(t, 20*time.Millisecond, e.RetryAfter, float64(time.Millisecond))
	})
}
