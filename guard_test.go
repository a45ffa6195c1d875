package wllock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestDoReturnsTheFunctionsErrorUnchanged(t *testing.T) {
	l, _ := newLocker(t)
	own := errors.New("out of stock")
	require.Same(t, own, l.Do(t.Context(), "n", "k", func(context.Context) error { return own }))
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
}

// The Java original lost the results of guarded functions.
func TestCallReturnsTheResult(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	n, err := wllock.Call(t.Context(), l, "n", "k", func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)

	defer hold(t, l, "n", "k")()
	n, err = wllock.Call(t.Context(), l, "n", "k", func(context.Context) (int, error) { return 7, nil })
	require.ErrorIs(t, err, wllock.ErrQueueFull)
	require.Zero(t, n)
}

func TestGuardExcludes(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	n, inside := 0, 0
	count := func(ctx context.Context) error {
		inside++
		runtime.Gosched()
		if inside != 1 {
			t.Error("two inside at once")
		}
		n++
		inside--
		return nil
	}
	guarded := []wllock.Func{l.Guard("n", "k", count), other.Guard("n", "k", count)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 100 {
				if err := guarded[i%2](context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2000, n)
}

func TestWrapTakesTheKeyFromTheArgument(t *testing.T) {
	l, _ := newLocker(t)
	buy := wllock.Wrap(l, "product", func(id string) string { return id },
		func(ctx context.Context, id string) (string, error) {
			h, _ := wllock.HeldFrom(ctx)
			return h.Key(), nil
		})
	got, err := buy(t.Context(), "1000")
	require.NoError(t, err)
	require.Equal(t, "test:product:1000", got)
}

func TestWrapOrAnswersWithOtherwise(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	buy := wllock.WrapOr(l, "product", func(id string) string { return id },
		func(context.Context, string) (string, error) { return "sold", nil },
		func(ctx context.Context, id string, err error) (string, error) {
			_, held := wllock.HeldFrom(ctx)
			require.False(t, held)
			require.ErrorIs(t, err, wllock.ErrQueueFull)
			return "try later: " + id, nil
		})
	got, err := buy(t.Context(), "1")
	require.NoError(t, err)
	require.Equal(t, "sold", got)

	defer hold(t, l, "product", "1")()
	got, err = buy(t.Context(), "1")
	require.NoError(t, err)
	require.Equal(t, "try later: 1", got)
}

// The Java original ran the fallback while it still held the local turn.
func TestFallbackHoldsNothing(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	release := hold(t, other, "n", "k")
	answer := errors.New("sold out, try later")
	err := l.Do(t.Context(), "n", "k", never(t), wllock.NoWait(),
		wllock.WithFallback(func(ctx context.Context, reason error) error {
			require.ErrorIs(t, reason, wllock.ErrHeld)
			release()
			require.NoError(t, l.Do(ctx, "n", "k", nothing, wllock.NoWait()), "the local turn is free, too")
			return answer
		}))
	require.Same(t, answer, err)
}

func TestFallbackIsNotRunForTheFunctionsOwnError(t *testing.T) {
	l, _ := newLocker(t)
	own := errors.New("own")
	err := l.Do(t.Context(), "n", "k", func(context.Context) error { return own },
		wllock.WithFallback(func(context.Context, error) error { t.Error("fallback was run"); return nil }))
	require.Same(t, own, err)
}

func TestPanicReleasesBothTiersAndContinues(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	require.PanicsWithValue(t, "boom", func() {
		_ = l.Do(t.Context(), "n", "k", func(context.Context) error { panic("boom") })
	})
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

func TestGoexitReleasesBothTiers(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Do(context.Background(), "n", "k", func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

func TestSharedHoldersTogetherWriterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lockers := []*wllock.Locker{l, lockerOn(t, b)}
		readers, most, writers := 0, 0, 0
		var mu sync.Mutex
		read := func(context.Context) error {
			mu.Lock()
			readers++
			most = max(most, readers)
			if writers > 0 {
				t.Error("reader beside a writer")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			readers--
			mu.Unlock()
			return nil
		}
		write := func(context.Context) error {
			mu.Lock()
			writers++
			if writers > 1 || readers > 0 {
				t.Error("writer not alone")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			writers--
			mu.Unlock()
			return nil
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for range 10 {
					if i%8 == 0 {
						require.NoError(t, lockers[i%2].Do(t.Context(), "n", "k", write))
					} else {
						require.NoError(t, lockers[i%2].Do(t.Context(), "n", "k", read, wllock.Shared()))
					}
				}
			})
		}
		wg.Wait()
		require.Greater(t, most, 10)
	})
}
