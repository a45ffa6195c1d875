package behavior

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

func TestGuards(t *testing.T) {
	scene(t, "the function's error is returned unchanged", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		own := errors.New("out of stock")
		fallback := wllock.WithFallback(func(context.Context, error) error { t.Error("fallback was run"); return nil })
		for _, all := range [][]wllock.Resource{keys("a"), keys("a", "b")} {
			require.Same(t, own, do(t.Context(), l, all, func(context.Context) error { return own }, fallback))
		}
	})

	// The Java original ran the fallback while it still held the local turn.
	pair(t, "the fallback holds nothing", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
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
	})

	scene(t, "panic and Goexit release both tiers", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		for _, all := range [][]wllock.Resource{keys("a"), keys("a", "b", "c")} {
			require.PanicsWithValue(t, "boom", func() { _ = do(t.Context(), l, all, func(context.Context) error { panic("boom") }) })
			free(t, l, b, "a", "b", "c")
			var exits sync.WaitGroup
			exits.Go(func() { _ = do(t.Context(), l, all, func(context.Context) error { runtime.Goexit(); return nil }) })
			exits.Wait()
			free(t, l, b, "a", "b", "c")
		}
	})

	bubble(t, "a panic of the backend releases what was acquired", func(t *testing.T) {
		b, broken := memlock.New(), true
		l := lockerOn(t, asking(b, func(_ context.Context, r *distributed.Request) error {
			if broken && r.Key == "test:n:c" {
				panic("backend")
			}
			return nil
		}))
		require.PanicsWithValue(t, "backend", func() { _ = l.Do(t.Context(), "n", "c", never(t)) })
		require.PanicsWithValue(t, "backend", func() { _ = l.DoAll(t.Context(), keys("a", "b", "c"), never(t)) })
		broken = false
		free(t, l, b, "a", "b", "c")
	})
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
	calls := map[string]struct {
		call func(context.Context, string) (string, error)
		busy string // the result while the lock is held
		err  error
	}{
		"Call": {func(ctx context.Context, key string) (string, error) {
			return wllock.Call(ctx, l, "n", key, func(ctx context.Context) (string, error) { return work(ctx, key) })
		}, "", wllock.ErrQueueFull},
		"Wrap":   {wllock.Wrap(l, "n", id, work), "", wllock.ErrQueueFull},
		"WrapOr": {wllock.WrapOr(l, "n", id, work, otherwise), "try later: k", nil},
	}
	for name, c := range calls {
		got, err := c.call(t.Context(), "k")
		require.NoError(t, err, name)
		require.Equal(t, "test:n:k", got, name)
	}
	defer hold(t, l, "n", "k")()
	for name, c := range calls {
		got, err := c.call(t.Context(), "k")
		require.ErrorIs(t, err, c.err, name)
		require.Equal(t, c.busy, got, name)
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

func TestNestedGuards(t *testing.T) {
	// The Java original's nested guards blocked themselves and then freed the outer lock.
	scene(t, "they are reentrant at any depth", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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
		require.Equal(t, slices.Repeat(fences[:1], 4), fences)
	}, wllock.WithThreshold(0))

	scene(t, "one behind another lock is the innermost", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		require.NoError(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
			return l.Do(ctx, "n", "b", func(ctx context.Context) error {
				require.Equal(t, "test:n:b", heldIn(ctx).Key())
				return l.Do(ctx, "n", "a", func(ctx context.Context) error {
					require.Equal(t, "test:n:a", heldIn(ctx).Key())
					b, ok := wllock.HeldKey(ctx, "n", "b")
					require.True(t, ok)
					require.Equal(t, "test:n:b", b.Key())
					_, ok = wllock.HeldKey(ctx, "n", "c")
					require.False(t, ok)
					return nil
				})
			})
		}))
	})

	// A framework uses the context again for other requests. Whoever asks with it for a lock that it names is refused, also from inside
	// another lock, and has all other locks.
	scene(t, "a context that is used again carries no lock", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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
				return l.Do(ctx, "n", "c", nothing)
			})
		}))
		require.NoError(t, l.Do(later, "n", "a", nothing), "it was released")
	})

	scene(t, "one pins the hold past its outer function", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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

	scene(t, "a nested Acquire is part of the hold", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			k, err := l.Acquire(ctx, "n", "k", wllock.NoWait())
			require.NoError(t, err)
			h, _ := wllock.HeldFrom(ctx)
			require.Equal(t, h.Fence(), k.Fence())
			require.NoError(t, k.Release(ctx))
			return h.Err()
		}))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})

	scene(t, "a context inside another hold's ends with that", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		lostAfter(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			return l.Do(context.WithValue(ctx, valueKey{}, 1), "n", "c", func(ctx context.Context) error {
				return l.DoAll(ctx, keys("b", "d"), func(ctx context.Context) error {
					_ = ctx.Done()
					loses(ctx, b, "a")
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
					return nil
				})
			})
		}))
	})
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

func TestContextThatOutlivedItsHoldAcquiresLikeAnyOther(t *testing.T) {
	for _, used := range []bool{false, true} {
		scene(t, fmt.Sprint("used: ", used), func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
			release := hold(t, lockerOn(t, b), "n", "k")
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

func TestAcquire(t *testing.T) {
	// A sharer came too late for a running lease, and is refused, and then admitted.
	scene(t, "the wait for fellow sharers is local", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
		k := acquire(t, l, "k", wllock.Shared())
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, ttl, k.LocalWait())
	}, wllock.WithMaxHandoffs(0))

	pair(t, "it holds until it is released", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
		k := acquire(t, l, "k")
		h, ok := wllock.HeldFrom(k.Context())
		require.True(t, ok)
		require.Equal(t, k.Fence(), h.Fence())
		require.NoError(t, k.Err())
		require.ErrorIs(t, other.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		require.NoError(t, k.Release(t.Context()))
		require.ErrorIs(t, k.Err(), wllock.ErrLeaseLost, "it is no longer held")
		hold(t, other, "n", "k", wllock.NoWait())() // the backend has answered
		defer hold(t, l, "n", "k")()
		require.NoError(t, k.Release(t.Context()), "again does nothing")
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
	})

	for who, noticed := range map[string]bool{"its holder": true, "only the backend": false} {
		scene(t, "Release of a lost lock of which knows "+who, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			k := acquire(t, l, "k")
			b.Expire("test:n:k")
			if noticed {
				<-k.Context().Done()
				require.ErrorIs(t, context.Cause(k.Context()), wllock.ErrLeaseLost)
				defer hold(t, l, "n", "k")()
			}
			lostAfter(t, k.Release(t.Context()))
			lostAfter(t, k.Release(t.Context()))
			require.EqualValues(t, 1, l.Stats().Total.Lost)
			held := errors.Is(l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
			require.Equal(t, noticed, held, "by the next")
		})
	}

	// Do is told by the answer, too, if it waits for that.
	scene(t, "SyncRelease of a lost lock", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		expires := func(context.Context) error { b.Expire("test:n:k"); return nil }
		lostAfter(t, l.Do(t.Context(), "n", "k", expires, wllock.SyncRelease()))
	})

	scene(t, "Release that the backend does not answer", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		k := acquire(t, l, "k")
		b.Partition(true)
		require.ErrorIs(t, k.Release(t.Context()), wllock.ErrUnavailable)
		b.Partition(false)
		other := lockerOn(t, b)
		require.Eventually(t, func() bool { // it may have been decided meanwhile that the backend is away
			return other.Do(t.Context(), "n", "k", nothing) == nil
		}, ttl, time.Millisecond)
	})
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
			inside(t, l, keys("a", "b"), func(ctx context.Context) {
				before := runtime.NumGoroutine()
				for range 500 {
					require.NoError(t, inner(l, ctx))
				}
				require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+100 }, time.Minute, time.Millisecond,
					"they stay; those of contexts that have ended only take a moment")
			})
		})
	}
}
