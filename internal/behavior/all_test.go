package behavior

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestDoAll(t *testing.T) {
	scene(t, "it holds every key with a fence of its own", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		asked := keys("b", "~c", "a", "b")
		var last map[string]uint64
		for range 2 {
			fences := map[string]uint64{}
			inside(t, l, asked, func(ctx context.Context) {
				for _, key := range []string{"a", "b", "c"} {
					h, ok := wllock.HeldKey(ctx, "n", key)
					require.True(t, ok)
					require.Equal(t, "test:n:"+key, h.Key())
					require.NoError(t, h.Err())
					fences[key] = h.Fence()
					require.ErrorIs(t, l.Do(context.Background(), "n", key, never(t), wllock.NoWait()), wllock.ErrHeld)
				}
				require.NoError(t, l.Do(context.Background(), "n", "c", nothing, wllock.NoWait(), wllock.Shared()))
				require.Equal(t, "test:n:c", heldIn(ctx).Key(), "the last in the common order")
				require.EqualValues(t, 3, l.Stats().Names["n"].Held)
				modes := map[string]string{}
				for _, info := range l.Locks(10) {
					modes[info.Key] = fmt.Sprint(info.Mode, " ", info.Holders)
				}
				require.Equal(t, map[string]string{"test:n:a": "exclusive 1", "test:n:b": "exclusive 1", "test:n:c": "shared 1"}, modes)
			})
			for key, fence := range fences {
				require.Greater(t, fence, last[key])
			}
			last = fences
		}
		require.Equal(t, keys("b", "~c", "a", "b"), asked, "the caller's slice is left alone")
		free(t, l, b, "a", "b", "c")
	})

	scene(t, "duplicates are merged, and exclusive wins", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		for _, asked := range [][]string{{"~k", "k"}, {"k", "~k"}, {"~k", "~k", "k"}} {
			require.NoError(t, l.DoAll(t.Context(), keys(asked...), func(ctx context.Context) error {
				require.EqualValues(t, 1, l.Stats().Total.Held)
				return l.Do(ctx, "n", "k", nothing) // no ErrUpgrade
			}))
		}
		inside(t, l, keys("~k", "~k"), func(ctx context.Context) {
			require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), wllock.ErrUpgrade)
		})
	})

	scene(t, "GuardAll is one each time", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		n, asked := 0, keys("a", "b")
		guarded := l.GuardAll(asked, func(ctx context.Context) error {
			n++
			_, ok := wllock.HeldKey(ctx, "n", "a")
			require.True(t, ok)
			return nil
		})
		asked[0].Key = "changed"
		for range 3 {
			require.NoError(t, guarded(t.Context()))
		}
		require.Equal(t, 3, n)
	})

	scene(t, "wrong arguments are refused before any queue", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		var many []wllock.Resource
		for i := range 65 {
			many = append(many, wllock.Resource{Name: "n", Key: strconv.Itoa(i)})
		}
		noKey, noName := wllock.Resource{Name: "n"}, wllock.Resource{Name: "a:b", Key: "k"}
		for _, wrong := range [][]wllock.Resource{nil, {}, many, append(keys("k"), noKey), append(keys("k"), noName)} {
			require.ErrorIs(t, l.DoAll(t.Context(), wrong, never(t)), wllock.ErrInvalidKey)
		}
		require.ErrorContains(t, l.DoAll(t.Context(), many, never(t)), "DoAll of 65 different keys: want 1 to 64")
		require.ErrorContains(t, l.DoAll(t.Context(), keys("a"), nil), "nil")
		var noContext context.Context
		require.ErrorContains(t, l.DoAll(noContext, keys("a"), never(t)), "nil")
		require.ErrorContains(t, l.DoAll(t.Context(), keys("a"), never(t), nil), "nil")
		require.ErrorContains(t, l.DoAll(t.Context(), keys("a"), never(t), wllock.WithWait(-1)), "WithWait(-1ns)")
		require.Zero(t, l.Stats().Total.Acquired)

		require.NoError(t, l.DoAll(t.Context(), append(many[:64], many[:64]...), nothing), "64, each of them twice")
		require.EqualValues(t, 64, l.Stats().Total.Acquired)
	})

	bubble(t, "shed at the third key it frees the first two and wakes the next", func(t *testing.T) {
		const answer = 100 * time.Millisecond
		l := lockerOn(t, lateFor(memlock.New(), "test:n:b", answer), wllock.WithThreshold(1))
		release := hold(t, l, "n", "c")
		go func() { _ = l.Do(context.Background(), "n", "c", nothing) }() // waits: the queue of c is full
		begin := time.Now()
		shed, woken := make(chan error, 1), make(chan error, 1)
		go func() { shed <- l.DoAll(context.Background(), keys("a", "b", "c"), never(t)) }()
		synctest.Wait() // it holds a, and asks for b
		go func() { woken <- l.Do(context.Background(), "n", "a", nothing) }()
		synctest.Wait()
		require.EqualValues(t, 2, l.Stats().Total.Waiting)
		e := errorOf(t, <-shed, wllock.ErrQueueFull, "c")
		require.NoError(t, <-woken)
		require.Equal(t, answer, time.Since(begin), "at once")
		require.Equal(t, wllock.TierLocal, e.Tier)
		require.Equal(t, answer, e.Waited, "for all keys")
		require.Positive(t, e.RetryAfter)
		require.NoError(t, l.Do(t.Context(), "n", "b", nothing, wllock.NoWait()))
		release()
		synctest.Wait()
		require.EqualValues(t, 1, l.Stats().Names["n"].Shed)
		require.Zero(t, l.Stats().Names["n"].Held)
	})

	bubble(t, "SyncRelease waits for all answers at once", func(t *testing.T) {
		l, four := lockerOn(t, tardy(memlock.New(), tardyBy)), keys("a", "b", "c", "d")
		require.Equal(t, tardyBy, elapsed(func() { require.NoError(t, l.DoAll(t.Context(), four, nothing, wllock.SyncRelease())) }))
		require.Zero(t, elapsed(func() { require.NoError(t, l.DoAll(t.Context(), four, nothing)) }))
	})

	// Middleware would answer an error that Is Canceled as that of a call that has run.
	bubble(t, "Close of a half acquired one is no end of the caller's context", func(t *testing.T) {
		l := lockerOn(t, asking(memlock.New(), func(ctx context.Context, r *distributed.Request) error {
			if r.Key == "test:n:b" {
				<-ctx.Done()
			}
			return ctx.Err()
		}))
		result := started(l, keys("a", "b"), never(t))
		require.ErrorContains(t, l.Close(within(t, ttl/10)), `1 lock was still held: "test:n:a": `)
		err := <-result
		errorOf(t, err, wllock.ErrClosed, "b")
		require.NotErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestOptionsOfADoAll(t *testing.T) {
	answer := errors.New("answered")
	l, _ := newLocker(t, wllock.WithName("patient", wllock.WithFallback(func(_ context.Context, err error) error {
		require.ErrorIs(t, err, wllock.ErrHeld)
		return answer
	})), wllock.WithName("catalog", wllock.Shared()))
	all := []wllock.Resource{{Name: "patient", Key: "k"}, {Name: "n", Key: "k"}}
	t.Run("the fallback is that of the key that was not acquired", func(t *testing.T) {
		release := hold(t, l, "patient", "k")
		require.Same(t, answer, l.DoAll(t.Context(), all, never(t), wllock.NoWait()))
		own := errors.New("own")
		require.Same(t, own, l.DoAll(t.Context(), all, never(t), wllock.NoWait(),
			wllock.WithFallback(func(ctx context.Context, err error) error {
				require.NoError(t, l.Do(ctx, "n", "k", nothing, wllock.NoWait()), "it holds nothing")
				return own
			})))
		release()
		defer hold(t, l, "n", "k")()
		require.ErrorIs(t, l.DoAll(t.Context(), all, never(t), wllock.NoWait()), wllock.ErrHeld)
	})
	t.Run("Shared is for all", func(t *testing.T) {
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(context.Context) error {
			return l.DoAll(context.Background(), keys("~a", "~b"), nothing, wllock.NoWait())
		}, wllock.Shared()))
	})
	t.Run("an option of a name is for its keys", func(t *testing.T) {
		all := []wllock.Resource{{Name: "catalog", Key: "k"}, {Name: "n", Key: "k"}}
		inside(t, l, all, func(context.Context) {
			require.NoError(t, l.Do(context.Background(), "catalog", "k", nothing, wllock.NoWait()))
			require.ErrorIs(t, l.Do(context.Background(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		})
	})
	t.Run("a threshold is for the queue of each key", func(t *testing.T) {
		defer hold(t, l, "n", "b")()
		errorOf(t, l.DoAll(t.Context(), keys("a", "b"), never(t), wllock.WithCallThreshold(0)), wllock.ErrQueueFull, "b")
	})
}

func TestDoAllInsideHolds(t *testing.T) {
	scene(t, "nested guards of any of the keys run through", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		inside(t, l, keys("a", "b", "~c"), func(ctx context.Context) {
			for _, key := range []string{"a", "b"} {
				require.NoError(t, l.Do(ctx, "n", key, func(ctx context.Context) error {
					require.Equal(t, "test:n:"+key, heldIn(ctx).Key())
					return l.DoAll(ctx, keys("c", "b", "a"), nothing, wllock.Shared())
				}))
			}
			require.NoError(t, l.DoAll(ctx, keys("a", "~c"), nothing))
			require.EqualValues(t, 3, l.Stats().Total.Held, "nested ones are not counted")
		})
		require.EqualValues(t, 3, l.Stats().Total.Acquired)
	})

	scene(t, "it runs through for a key of the caller's and acquires later ones", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		inside(t, l, keys("b"), func(ctx context.Context) {
			outer, _ := wllock.HeldFrom(ctx)
			require.NoError(t, l.DoAll(ctx, keys("c", "b"), func(ctx context.Context) error {
				h, ok := wllock.HeldKey(ctx, "n", "b")
				require.True(t, ok)
				require.Equal(t, outer.Fence(), h.Fence())
				_, ok = wllock.HeldKey(ctx, "n", "c")
				require.True(t, ok)
				require.EqualValues(t, 2, l.Stats().Total.Held)
				return nil
			}))
			require.NoError(t, outer.Err(), "the outer hold is still there")
			require.NoError(t, l.Do(context.Background(), "n", "c", nothing, wllock.NoWait()), "the inner one is not")
		})
		free(t, l, b, "b", "c")
	})

	scene(t, "ErrLockOrder comes before any queue or network", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		defer hold(t, l, "n", "a")()
		inside(t, l, keys("b", "d"), func(ctx context.Context) {
			b.Partition(true)
			defer b.Partition(false)
			for _, wrong := range []string{"a", "c", "cd"} {
				e := errorOf(t, l.DoAll(ctx, keys(wrong, "b", "e"), never(t)), wllock.ErrLockOrder, wrong)
				require.Equal(t, wllock.TierLocal, e.Tier)
			}
		})
		require.EqualValues(t, 3, l.Stats().Total.Acquired, "a, b and d")
		require.Zero(t, l.Stats().Total.Unavailable)
	})

	pair(t, "the order is that of the holds of its own Locker in its context", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
		inside(t, l, keys("b"), func(ctx context.Context) {
			require.NoError(t, other.DoAll(ctx, keys("a"), nothing), "of another Locker")
			require.NoError(t, l.DoAll(t.Context(), keys("a"), nothing), "not in the context")
			require.NoError(t, l.Do(ctx, "n", "a", nothing), "a plain Do is not checked")
			k := acquire(t, l, "c")
			errorOf(t, l.DoAll(k.Context(), keys("bb"), never(t)), wllock.ErrLockOrder, "bb")
			require.NoError(t, k.Release(t.Context()))
			require.NoError(t, l.DoAll(k.Context(), keys("bb"), nothing), "released")
		})
	})

	scene(t, "inside its own shared hold it is an upgrade", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		inside(t, l, keys("~a", "b"), func(ctx context.Context) {
			errorOf(t, l.DoAll(ctx, keys("b", "c", "a"), never(t)), wllock.ErrUpgrade, "a")
			require.NoError(t, l.DoAll(ctx, keys("~a", "b", "c"), nothing))
		})
		free(t, l, b, "a", "b", "c")
	})

	// A guard that outlives the function keeps its key, and that alone. Its context ends with its own lock, not with the others.
	scene(t, "a nested guard that outlives it keeps its own key", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		left := make(chan error, 1)
		inside(t, l, keys("a", "b"), func(ctx context.Context) {
			go func() {
				left <- l.Do(ctx, "n", "a", func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			synctest.Wait()
		})
		require.ErrorIs(t, l.Do(t.Context(), "n", "a", never(t), wllock.NoWait()), wllock.ErrHeld)
		lostAfter(t, l.Do(t.Context(), "n", "b", losing(b, "b"), wllock.NoWait()))
		time.Sleep(3 * ttl) // the lease of b would have expired
		require.Empty(t, left)
		b.Expire("test:n:a")
		lostAfter(t, <-left)
		synctest.Wait() // its turn is passed on meanwhile
		free(t, l, b, "a", "b")
	})
}

// A caller's context may live as long as the process.
func TestDoAllIsForgottenByTheCallersContext(t *testing.T) {
	l, _ := newLocker(t)
	ctx := t.Context()
	var held weak.Pointer[wllock.Held]
	require.NoError(t, l.DoAll(ctx, keys("a", "b", "c"), func(ctx context.Context) error {
		_ = ctx.Done()
		held = weak.Make(heldIn(ctx))
		return nil
	}))
	require.Eventually(t, func() bool { runtime.GC(); return held.Value() == nil }, 10*time.Second, 10*time.Millisecond)
	runtime.KeepAlive(ctx)
}
