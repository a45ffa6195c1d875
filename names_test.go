package wllock_test

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
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

// TestNewNamesAreCheap: however many there are, as in Do(ctx, "product-1000", "x").
func TestNewNamesAreCheap(t *testing.T) {
	l, _ := newLocker(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 5000
	for i := range n {
		require.NoError(t, l.Do(t.Context(), strconv.Itoa(i), "k", nothing))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/n, uint64(10_000))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = l.Do(context.Background(), "17", "k", nothing) }), 5.0)
}

// TestTooManyNamesStillLock: their figures are counted together, and all else is as with others.
func TestTooManyNamesStillLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		l, _ := newLocker(t, wllock.WithThreshold(1), wllock.WithName("configured", wllock.WithCallThreshold(3)),
			newBadLog(func(r slog.Record) { lines = append(lines, r.Message) }))
		const most, more = 10_000, 100
		for i := range most + more {
			require.NoError(t, l.Do(t.Context(), strconv.Itoa(i), "k", nothing))
		}
		synctest.Wait()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "too many lock names")
		s := l.Stats()
		require.Len(t, s.Names, most+1)
		require.EqualValues(t, more, s.Names["(other)"].Acquired)
		require.EqualValues(t, most+more, s.Total.Acquired)

		release := hold(t, l, "beyond", "k")
		require.ErrorIs(t, l.Do(t.Context(), "beyond", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "further", "k", func(ctx context.Context) error {
			held, _ := wllock.HeldKey(ctx, "further", "k")
			require.Equal(t, "test:further:k", held.Key())
			require.EqualValues(t, 2, l.Stats().Names["(other)"].Held)
			return l.Do(ctx, "further", "k", nothing, wllock.NoWait()) // reentrant
		}, wllock.NoWait()))
		release()
		for name, limit := range map[string]int{"beyond": 1, "configured": 3, "set": 2} {
			if name == "set" {
				require.NoError(t, l.SetThreshold(name, limit))
			}
			release := hold(t, l, name, "k")
			for range limit {
				go func() { _ = l.Do(context.Background(), name, "k", nothing) }()
			}
			synctest.Wait()
			require.ErrorIs(t, l.Do(t.Context(), name, "k", never(t)), wllock.ErrQueueFull, name)
			release()
			synctest.Wait()
		}
		require.Contains(t, l.Stats().Names, "set")
		require.Contains(t, l.Stats().Names, "configured")
	})
}

// TestNewNameOfManyCallersIsCountedOnce: all that ask for it first, at the same time, get the same figures.
func TestNewNameOfManyCallersIsCountedOnce(t *testing.T) {
	l, _ := newLocker(t)
	const names, callers = 300, 8
	for i := range names {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() { _ = l.Do(t.Context(), strconv.Itoa(i), "k", nothing) })
		}
		wg.Wait()
	}
	for name, s := range l.Stats().Names {
		require.EqualValues(t, callers, s.Acquired, name)
	}
}
