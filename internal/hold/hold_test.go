package hold_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The timer of LockTimeMax has taken the hold out of its set as the function returned in time.
func TestTimerThatComesLateIsNoOverstay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testlocker.New(t)
		for _, opts := range [][]wllock.CallOption{nil, {wllock.WithHoldAtLeast(time.Minute)}} {
			var h *hold.Hold
			require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				h = hold.Innermost(ctx).Hold()
				return nil
			}, append(opts, wllock.WithLockTimeMax(time.Second))...))
			hold.Due(h)
			require.Zero(t, l.Stats().Total.Overstays)
		}
		require.EqualValues(t, 1, l.Stats().Total.Held, "it stays")
	})
}

func TestHoldThatDoesNotStayLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := testlocker.New(t)
		var h *hold.Hold
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h = hold.Innermost(ctx).Hold()
			b.Expire("test:n:k")
			<-ctx.Done()
			return nil
		}, wllock.WithHoldAtLeast(time.Minute), wllock.WithLockTimeMax(0)), wllock.ErrLeaseLost)
		require.Zero(t, hold.Limits(h))
	})
}

// The timer of LockTimeMax may fire as its hold is released. A guard nested in another key of the call is still inside.
func TestKeyThatOverstaysAsItIsReleasedLeavesTheOthersContextAlone(t *testing.T) {
	l, _ := testlocker.New(t)
	stay, left := make(chan struct{}), make(chan error)
	var a *hold.Hold
	require.NoError(t, l.DoAll(t.Context(), []wllock.Resource{{Name: "n", Key: "a"}, {Name: "n", Key: "b"}}, func(ctx context.Context) error {
		a = hold.Around(hold.Innermost(ctx)).Hold()
		require.True(t, a.Is("n", "a"))
		inside := make(chan struct{})
		go func() {
			left <- l.Do(ctx, "n", "b", func(ctx context.Context) error {
				close(inside)
				<-stay
				return ctx.Err()
			})
		}()
		<-inside
		return nil
	}))
	hold.Overstay(a)
	close(stay)
	require.NoError(t, <-left)
}
