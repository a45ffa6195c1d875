package wllock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/memlock"
)

// The timer of LockTimeMax has taken the hold out of its set as the function returned in time.
func TestTimerThatComesLateIsNoOverstay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New("test", memlock.New())
		require.NoError(t, err)
		for _, opts := range [][]CallOption{nil, {WithHoldAtLeast(time.Minute)}} {
			e, err := l.enter(t.Context(), "n", "k", append(opts, WithLockTimeMax(time.Second)))
			require.NoError(t, err)
			require.NoError(t, e.run(func(context.Context) error { return nil }))
			e.hold.due()
			require.Zero(t, l.Stats().Total.Overstays)
		}
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestHoldThatDoesNotStayLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, err := New("test", b)
		require.NoError(t, err)
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			b.Expire("test:n:k")
			<-ctx.Done()
			return nil
		}, WithHoldAtLeast(time.Minute), WithLockTimeMax(0)), ErrLeaseLost)
		require.Zero(t, l.limits.Len())
		require.NoError(t, l.Close(t.Context()))
	})
}
