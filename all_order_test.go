package wllock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// The order that makes a circle without DoAll.
func TestDoAllInOppositeOrdersNeverWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		done := make(chan error, 2)
		for i, one := range []*wllock.Locker{l, other} {
			asked := [][]string{{"a", "b", "c"}, {"c", "b", "a"}}[i]
			go func() {
				for range 200 {
					if err := one.DoAll(context.Background(), keys(asked...), func(context.Context) error {
						time.Sleep(time.Millisecond)
						return nil
					}); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

// The order is that of the full names: a colon comes after a minus.
func TestCommonOrderIsThatOfTheFullNames(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.DoAll(t.Context(), []wllock.Resource{{Name: "a", Key: "1"}, {Name: "a-b", Key: "1"}},
		func(ctx context.Context) error {
			last, _ := wllock.HeldFrom(ctx)
			require.Equal(t, "test:a:1", last.Key())
			return nil
		}))
}

func TestNestedGuardsOfAnyOfTheKeysRunThrough(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.DoAll(t.Context(), keys("a", "b", "~c"), func(ctx context.Context) error {
		for _, key := range []string{"a", "b"} {
			require.NoError(t, l.Do(ctx, "n", key, func(ctx context.Context) error {
				innermost, _ := wllock.HeldFrom(ctx)
				require.Equal(t, "test:n:"+key, innermost.Key())
				return l.DoAll(ctx, keys("c", "b", "a"), nothing, wllock.Shared())
			}))
		}
		require.NoError(t, l.DoAll(ctx, keys("a", "~c"), nothing))
		require.EqualValues(t, 3, l.Stats().Total.Held, "nested ones are not counted")
		return nil
	}))
	require.EqualValues(t, 3, l.Stats().Total.Acquired)
}

func TestDoAllInsideAHoldRunsThroughForItsKeyAndAcquiresLaterOnes(t *testing.T) {
	l, b := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "b", func(ctx context.Context) error {
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
		return nil
	}))
	free(t, l, b, "b", "c")
}

func TestErrLockOrderComesBeforeAnyQueueOrNetwork(t *testing.T) {
	l, b := newLocker(t)
	release := hold(t, l, "n", "a")
	defer release()
	require.NoError(t, l.DoAll(t.Context(), keys("b", "d"), func(ctx context.Context) error {
		b.Partition(true)
		defer b.Partition(false)
		for _, c := range []struct{ asked, wrong string }{{"a", "a"}, {"c", "c"}, {"cd", "cd"}} {
			asked := keys(c.asked, "b", "e")
			e := errorOf(t, l.DoAll(ctx, asked, never(t)), wllock.ErrLockOrder, c.wrong)
			require.Equal(t, wllock.TierLocal, e.Tier)
		}
		return nil
	}))
	require.EqualValues(t, 3, l.Stats().Total.Acquired, "a, b and d")
	require.Zero(t, l.Stats().Total.Unavailable)
}

func TestLockOrderKnowsTheHoldsOfItsOwnLockerInItsContextOnly(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	require.NoError(t, l.Do(t.Context(), "n", "b", func(ctx context.Context) error {
		require.NoError(t, other.DoAll(ctx, keys("a"), nothing), "of another Locker")
		require.NoError(t, l.DoAll(t.Context(), keys("a"), nothing), "not in the context")
		require.NoError(t, l.Do(ctx, "n", "a", nothing), "a plain Do is not checked")
		k, err := l.Acquire(t.Context(), "n", "c")
		require.NoError(t, err)
		errorOf(t, l.DoAll(k.Context(), keys("bb"), never(t)), wllock.ErrLockOrder, "bb")
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, l.DoAll(k.Context(), keys("bb"), nothing), "released")
		return nil
	}))
}

func TestDoAllInsideItsOwnSharedHoldIsAnUpgrade(t *testing.T) {
	l, b := newLocker(t)
	require.NoError(t, l.DoAll(t.Context(), keys("~a", "b"), func(ctx context.Context) error {
		errorOf(t, l.DoAll(ctx, keys("b", "c", "a"), never(t)), wllock.ErrUpgrade, "a")
		require.NoError(t, l.DoAll(ctx, keys("~a", "b", "c"), nothing))
		return nil
	}))
	free(t, l, b, "a", "b", "c")
}

// A guard that outlives the function keeps its key, and that alone.
func TestNestedGuardThatOutlivesADoAllKeepsItsKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		left := make(chan error, 1)
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			go func() {
				left <- l.Do(ctx, "n", "a", func(ctx context.Context) error {
					time.Sleep(3 * ttl) // the lease of b would have expired
					h, _ := wllock.HeldFrom(ctx)
					return h.Err()
				})
			}()
			synctest.Wait()
			return nil
		}))
		require.ErrorIs(t, l.Do(t.Context(), "n", "a", never(t), wllock.NoWait()), wllock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "n", "b", nothing, wllock.NoWait()))
		require.NoError(t, <-left)
		free(t, l, b, "a", "b")
	})
}

// The context of a guard that outlives the function ends with its own lock, not with the others.
func TestLossUnderAGuardThatOutlivesADoAllEndsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		left := make(chan error, 1)
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			go func() {
				left <- l.Do(ctx, "n", "a", func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			synctest.Wait()
			return nil
		}))
		lostAfter(t, l.Do(t.Context(), "n", "b", func(ctx context.Context) error {
			b.Expire("test:n:b")
			<-ctx.Done()
			return nil
		}))
		require.Empty(t, left)
		b.Expire("test:n:a")
		lostAfter(t, <-left)
	})
}

// A caller's context may live as long as the process.
func TestDoAllIsForgottenByTheCallersContext(t *testing.T) {
	l, _ := newLocker(t)
	ctx := t.Context()
	gone := make(chan struct{})
	require.NoError(t, l.DoAll(ctx, keys("a", "b", "c"), func(ctx context.Context) error {
		_ = ctx.Done()
		h, _ := wllock.HeldFrom(ctx)
		runtime.AddCleanup(h, func(struct{}) { close(gone) }, struct{}{})
		return nil
	}))
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, 10*time.Second, 10*time.Millisecond)
}
