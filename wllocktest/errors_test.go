package wllocktest_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// errorCase provokes an error as the table of docs/testing.md says.
type errorCase struct {
	want    error
	provoke func(t *testing.T, l *wllock.Locker, f *wllocktest.Faults) error
}

// over is what a function returns that works until its context ends.
func over(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

var errorCases = map[string]errorCase{
	"ErrQueueFull": {wllock.ErrQueueFull, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		wllocktest.Hold(t, l, "product", "1")
		return l.Do(t.Context(), "product", "1", nothing, wllock.WithCallThreshold(0))
	}},
	"ErrHeld": {wllock.ErrHeld, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		wllocktest.Hold(t, l, "product", "1")
		return l.Do(t.Context(), "product", "1", nothing, wllock.NoWait())
	}},
	"ErrWaitTimeout": {wllock.ErrWaitTimeout, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		wllocktest.Hold(t, l, "product", "1")
		return l.Do(t.Context(), "product", "1", nothing, wllock.WithWait(time.Hour))
	}},
	"ErrUnavailable": {wllock.ErrUnavailable, func(t *testing.T, l *wllock.Locker, f *wllocktest.Faults) error {
		f.Partition()
		return l.Do(t.Context(), "product", "1", nothing)
	}},
	"ErrLeaseLost": {wllock.ErrLeaseLost, func(t *testing.T, l *wllock.Locker, f *wllocktest.Faults) error {
		return l.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			f.Lose("product", "1")
			return over(ctx)
		})
	}},
	"ErrLockTimeMax": {wllock.ErrLockTimeMax, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		return l.Do(t.Context(), "product", "1", over, wllock.WithLockTimeMax(time.Minute))
	}},
	"ErrClosed": {wllock.ErrClosed, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		require.NoError(t, l.Close(t.Context()))
		return l.Do(t.Context(), "product", "1", nothing)
	}},
	"ErrInvalidKey": {wllock.ErrInvalidKey, func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) error {
		return l.Do(t.Context(), "product", "", nothing)
	}},
}

func TestEveryErrorCanBeProvoked(t *testing.T) {
	guide, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	for name, c := range errorCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, faults := wllocktest.NewWithFaults(t)
				require.ErrorIs(t, c.provoke(t, l, faults), c.want)
			})
			require.Contains(t, string(guide), "| `"+name+"` |")
		})
	}
}
