package behavior

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
	"github.com/wllock/wllock/distributed/memlock"
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

// The Java original's nested guards blocked themselves and then freed the outer lock.
func TestGuardsAreReentrantAtAnyDepth(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	var fences []uint64
	var down func(depth int) wllock.Func
	down = func(depth int) wllock.Func {
		return func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			fences = append(fences, h.Fence())
			if depth == 0 {
				return nil
			}
			require.NoError(t, l.Do(ctx, "n", "k", down(depth-1)))
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrQueueFull, "the outer lock is still held")
			return nil
		}
	}
	require.NoError(t, l.Do(t.Context(), "n", "k", down(3)))
	require.Len(t, fences, 4)
	for _, f := range fences {
		require.Equal(t, fences[0], f)
	}
}

func TestNestedGuardBehindAnotherLockIsTheInnermost(t *testing.T) {
	l, _ := newLocker(t)
	at := func(ctx context.Context) string {
		h, _ := wllock.HeldFrom(ctx)
		return h.Key()
	}
	require.NoError(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
		return l.Do(ctx, "n", "b", func(ctx context.Context) error {
			require.Equal(t, "test:n:b", at(ctx))
			return l.Do(ctx, "n", "a", func(ctx context.Context) error {
				require.Equal(t, "test:n:a", at(ctx))
				b, ok := wllock.HeldKey(ctx, "n", "b")
				require.True(t, ok)
				require.Equal(t, "test:n:b", b.Key())
				_, ok = wllock.HeldKey(ctx, "n", "c")
				require.False(t, ok)
				return nil
			})
		})
	}))
}

func TestNestedGuardPinsTheHoldPastItsOuterFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		finish, inner := make(chan struct{}), make(chan error)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			go func() {
				inner <- l.Do(ctx, "n", "k", func(context.Context) error { <-finish; return nil })
			}()
			synctest.Wait()
			return nil
		})) // the outer Do has returned
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		close(finish)
		require.NoError(t, <-inner)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestContextThatOutlivedItsHoldAcquiresLikeAnyOther(t *testing.T) {
	for _, used := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			var late, derived context.Context
			require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
				late = ctx
				if used { // as a database driver does
					<-time.After(time.Millisecond)
					var stop func()
					derived, stop = context.WithCancel(ctx)
					_ = stop
					_ = ctx.Done()
				} else {
					derived = context.WithValue(ctx, t, t)
				}
				return nil
			}))
			other := lockerOn(t, b)
			release := hold(t, other, "n", "k")
			for _, ctx := range []context.Context{late, derived} {
				require.NoError(t, ctx.Err())
				require.ErrorIs(t, l.Do(ctx, "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			}
			release()
			for _, ctx := range []context.Context{late, derived} {
				require.NoError(t, l.Do(ctx, "n", "k", nothing))
			}
			cancel()
			for _, ctx := range []context.Context{late, derived} {
				<-ctx.Done()
				require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), context.Canceled)
			}
		})
	}
}

func TestSharedInsideExclusiveIsFineTheOtherWayRoundIsErrUpgrade(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		return l.Do(ctx, "n", "k", func(ctx context.Context) error {
			return l.Do(ctx, "n", "k", nothing) // of the same exclusive hold
		}, wllock.Shared())
	}))
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		refusal(t, l.Do(ctx, "n", "k", never(t)), wllock.ErrUpgrade, wllock.TierLocal)
		return l.Do(ctx, "n", "k", nothing, wllock.Shared())
	}, wllock.Shared()))
}

func TestNestedGuardsInsideWorkWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		closed := make(chan error, 1)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			go func() { closed <- l.Close(context.Background()) }()
			synctest.Wait()
			require.ErrorIs(t, l.Do(ctx, "n", "other", never(t)), wllock.ErrClosed)
			return l.Do(ctx, "n", "k", nothing)
		}))
		require.NoError(t, <-closed)
	})
}

// TestWaitForFellowSharersIsLocal: the wait of a sharer that came too late for a running lease, refused or admitted.
func TestWaitForFellowSharersIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		release := hold(t, l, "n", "k", wllock.Shared())
		go func() { _ = other.Do(context.Background(), "n", "k", nothing) }() // the lease is contended
		time.Sleep(ttl)
		begin := time.Now()
		_, err := l.Acquire(context.Background(), "n", "k", wllock.Shared(), wllock.WithWait(ttl))
		took := time.Since(begin)
		var e *wllock.Error
		require.ErrorAs(t, err, &e)
		release()
		synctest.Wait()
		require.Equal(t, took, e.Waited)
		require.Equal(t, took, e.LocalWait)
	})
}

func TestWaitOfALateSharerIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		release := hold(t, l, "n", "k", wllock.Shared())
		go func() { _ = other.Do(context.Background(), "n", "k", nothing) }()
		time.Sleep(ttl)
		time.AfterFunc(ttl, release)
		k, err := l.Acquire(context.Background(), "n", "k", wllock.Shared())
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, ttl, k.LocalWait())
	})
}

func TestPanicOfTheBackendPassesTheTurnOn(t *testing.T) {
	b := &panics{Backend: memlock.New()}
	b.times.Store(1)
	l, err := wllock.New("test", b)
	require.NoError(t, err)
	require.Panics(t, func() { _ = l.Do(t.Context(), "n", "k", nothing) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = l.Do(ctx, "n", "k", nothing)
	require.NoError(t, err)
	require.NoError(t, l.Close(ctx))
}

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
