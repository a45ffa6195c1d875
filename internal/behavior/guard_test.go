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
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/heldkey"
)

func TestTheFunctionsErrorIsReturnedUnchanged(t *testing.T) {
	l, _ := newLocker(t)
	own := errors.New("out of stock")
	fallback := wllock.WithFallback(func(context.Context, error) error { t.Error("fallback was run"); return nil })
	for _, all := range [][]wllock.Resource{keys("a"), keys("a", "b")} {
		require.Same(t, own, do(t.Context(), l, all, func(context.Context) error { return own }, fallback))
	}
}

// The Java original lost the results of guarded functions.
func TestResultsOfGuardedFunctions(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	id := func(key string) string { return key }
	work := func(ctx context.Context, key string) (string, error) {
		h, ok := wllock.HeldKey(ctx, "n", key)
		require.True(t, ok)
		return h.Key(), nil
	}
	otherwise := func(ctx context.Context, key string, err error) (string, error) {
		_, held := wllock.HeldFrom(ctx)
		require.False(t, held)
		require.ErrorIs(t, err, wllock.ErrQueueFull)
		return "try later: " + key, nil
	}
	calls := map[string]func(context.Context, string) (string, error){
		"Call": func(ctx context.Context, key string) (string, error) {
			return wllock.Call(ctx, l, "n", key, func(ctx context.Context) (string, error) { return work(ctx, key) })
		},
		"Wrap":   wllock.Wrap(l, "n", id, work),
		"WrapOr": wllock.WrapOr(l, "n", id, work, otherwise),
	}
	for name, call := range calls {
		got, err := call(t.Context(), "k")
		require.NoError(t, err, name)
		require.Equal(t, "test:n:k", got, name)
	}
	defer hold(t, l, "n", "k")()
	for name, call := range calls {
		got, err := call(t.Context(), "k")
		if name == "WrapOr" {
			require.NoError(t, err)
			require.Equal(t, "try later: k", got)
		} else {
			require.ErrorIs(t, err, wllock.ErrQueueFull, name)
			require.Empty(t, got)
		}
	}
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

func TestPanicAndGoexitReleaseBothTiers(t *testing.T) {
	l, b := newLocker(t)
	for _, all := range [][]wllock.Resource{keys("a"), keys("a", "b", "c")} {
		require.PanicsWithValue(t, "boom", func() { _ = do(t.Context(), l, all, func(context.Context) error { panic("boom") }) })
		free(t, l, b, "a", "b", "c")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = do(t.Context(), l, all, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		free(t, l, b, "a", "b", "c")
	}
}

// The Java original's nested guards blocked themselves and then freed the outer lock.
func TestGuardsAreReentrantAtAnyDepth(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	var fences []uint64
	var down func(depth int) wllock.Func
	down = func(depth int) wllock.Func {
		return func(ctx context.Context) error {
			fences = append(fences, heldIn(ctx).Fence())
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
		return heldIn(ctx).Key()
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

// lent is the context of a framework while a request with a lock has it.
type lent struct {
	context.Context
	request context.Context
}

func (l lent) Value(key any) any {
	if key == heldkey.Key {
		return heldkey.Lent{Held: l.request.Value(key)}
	}
	return l.Context.Value(key)
}

// A context that its framework uses again for other requests carries no lock. Whoever asks with it for a lock that it names is refused, also from
// inside another lock, and has all other locks.
func TestContextThatIsUsedAgainCarriesNoLock(t *testing.T) {
	l, _ := newLocker(t)
	var later context.Context
	require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
		later = lent{t.Context(), ctx}
		_, ok := wllock.HeldFrom(later)
		require.False(t, ok)
		_, ok = wllock.HeldKey(later, "n", "a")
		require.False(t, ok)
		for _, key := range []string{"a", "b"} {
			require.ErrorContains(t, l.Do(later, "n", key, never(t)), "pass on the context of the request")
			require.ErrorContains(t, l.DoAll(later, keys(key, "c"), never(t)), "pass on the context of the request")
		}
		return l.Do(later, "n", "c", func(ctx context.Context) error {
			require.ErrorContains(t, l.Do(ctx, "n", "a", never(t)), "pass on the context of the request")
			return l.Do(ctx, "n", "c", func(context.Context) error { return nil })
		})
	}))
	require.NoError(t, l.Do(later, "n", "a", func(context.Context) error { return nil }), "it was released")
}

func TestNestedGuardPinsTheHoldPastItsOuterFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		finish, inner := make(chan struct{}), make(chan error)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			go func() { inner <- l.Do(ctx, "n", "k", func(context.Context) error { <-finish; return nil }) }()
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

// TestWaitForFellowSharersIsLocal: the wait of a sharer that came too late for a running lease, refused and admitted.
func TestWaitForFellowSharersIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		release := hold(t, l, "n", "k", wllock.Shared())
		go func() { _ = other.Do(context.Background(), "n", "k", nothing) }() // the lease is contended
		time.Sleep(ttl)
		begin := time.Now()
		_, err := l.Acquire(t.Context(), "n", "k", wllock.Shared(), wllock.WithWait(ttl))
		took := time.Since(begin)
		require.Equal(t, took, asError(t, err).Waited)
		require.Equal(t, took, asError(t, err).LocalWait)

		time.AfterFunc(ttl, release)
		k, err := l.Acquire(t.Context(), "n", "k", wllock.Shared())
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, ttl, k.LocalWait())
	})
}

func TestPanicOfTheBackendReleasesWhatWasAcquired(t *testing.T) {
	b, broken := memlock.New(), true
	l := lockerOn(t, entering{b, func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
		if broken && r.Key == "test:n:c" {
			panic("backend")
		}
		return b.Enter(ctx, r)
	}})
	require.PanicsWithValue(t, "backend", func() { _ = l.Do(t.Context(), "n", "c", never(t)) })
	require.PanicsWithValue(t, "backend", func() { _ = l.DoAll(t.Context(), keys("a", "b", "c"), never(t)) })
	broken = false
	free(t, l, b, "a", "b", "c")
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
	release := hold(t, other, "n", "k", wllock.NoWait()) // the backend has answered
	release()
	defer hold(t, l, "n", "k")()
	require.NoError(t, k.Release(t.Context()), "again does nothing")
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

type valueKey struct{}

// A goroutine for each hold whose function has asked for Done would stay until the hold is collected.
func TestContextInsideAnotherHoldsNeedsNoGoroutine(t *testing.T) {
	asksForDone := func(ctx context.Context) error { _ = ctx.Done(); return nil }
	for name, inner := range map[string]func(l *wllock.Locker, ctx context.Context) error{
		"Do, with a value between": func(l *wllock.Locker, ctx context.Context) error {
			return l.Do(context.WithValue(ctx, valueKey{}, 1), "n", "c", asksForDone)
		},
		"DoAll with a key of the outer one": func(l *wllock.Locker, ctx context.Context) error {
			return l.DoAll(ctx, keys("a", "c"), asksForDone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLocker(t)
			require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
				before := runtime.NumGoroutine()
				for range 500 {
					require.NoError(t, inner(l, ctx))
				}
				require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+100 }, time.Minute, time.Millisecond,
					"they stay; those of contexts that have ended only take a moment")
				return nil
			}))
		})
	}
}

func TestContextInsideAnotherHoldsEndsWithThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lostAfter(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			return l.Do(context.WithValue(ctx, valueKey{}, 1), "n", "c", func(ctx context.Context) error {
				return l.DoAll(ctx, keys("b", "d"), func(ctx context.Context) error {
					_ = ctx.Done()
					b.Expire("test:n:a")
					<-ctx.Done()
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
					return nil
				})
			})
		}))
	})
}
