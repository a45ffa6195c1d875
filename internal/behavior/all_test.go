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

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestDoAllHoldsEveryKeyWithAFenceOfItsOwn(t *testing.T) {
	l, b := newLocker(t)
	asked := keys("b", "~c", "a", "b")
	var last map[string]uint64
	for range 2 {
		fences := map[string]uint64{}
		require.NoError(t, l.DoAll(t.Context(), asked, func(ctx context.Context) error {
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
			return nil
		}))
		for key, fence := range fences {
			require.Greater(t, fence, last[key])
		}
		last = fences
	}
	require.Equal(t, keys("b", "~c", "a", "b"), asked, "the caller's slice is left alone")
	free(t, l, b, "a", "b", "c")
}

func TestDoAllMergesDuplicatesExclusiveWins(t *testing.T) {
	l, _ := newLocker(t)
	for _, asked := range [][]string{{"~k", "k"}, {"k", "~k"}, {"~k", "~k", "k"}} {
		require.NoError(t, l.DoAll(t.Context(), keys(asked...), func(ctx context.Context) error {
			require.EqualValues(t, 1, l.Stats().Total.Held)
			return l.Do(ctx, "n", "k", nothing) // no ErrUpgrade
		}))
	}
	require.NoError(t, l.DoAll(t.Context(), keys("~k", "~k"), func(ctx context.Context) error {
		require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), wllock.ErrUpgrade)
		return nil
	}))
}

func TestGuardAllIsADoAllEachTime(t *testing.T) {
	l, _ := newLocker(t)
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
}

func TestDoAllRefusesWrongArgumentsBeforeAnyQueue(t *testing.T) {
	l, _ := newLocker(t)
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
}

func TestShedAtTheThirdKeyFreesTheFirstTwoAndWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		require.NoError(t, l.DoAll(t.Context(), all, func(context.Context) error {
			require.NoError(t, l.Do(context.Background(), "catalog", "k", nothing, wllock.NoWait()))
			require.ErrorIs(t, l.Do(context.Background(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			return nil
		}))
	})
	t.Run("a threshold is for the queue of each key", func(t *testing.T) {
		defer hold(t, l, "n", "b")()
		errorOf(t, l.DoAll(t.Context(), keys("a", "b"), never(t), wllock.WithCallThreshold(0)), wllock.ErrQueueFull, "b")
	})
}

func TestSyncReleaseOfADoAllWaitsForAllAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answer = 100 * time.Millisecond
		l := lockerOn(t, tardy(memlock.New(), answer))
		begin := time.Now()
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b", "c", "d"), nothing, wllock.SyncRelease()))
		require.Equal(t, answer, time.Since(begin))
		begin = time.Now()
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b", "c", "d"), nothing))
		require.Zero(t, time.Since(begin))
	})
}

// Middleware would answer an error that Is Canceled as that of a call that has run.
func TestCloseOfAHalfAcquiredDoAllIsNoEndOfTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		heeds := func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
			if r.Key == "test:n:b" {
				<-ctx.Done()
				return nil, nil, ctx.Err()
			}
			return b.Enter(ctx, r)
		}
		l := lockerOn(t, entering{b, heeds})
		result := started(l, keys("a", "b"), never(t))
		ctx := within(t, ttl/10)
		require.ErrorContains(t, l.Close(ctx), `1 lock was still held: "test:n:a": `)
		err := <-result
		errorOf(t, err, wllock.ErrClosed, "b")
		require.NotErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close(t.Context()))
	})
}

// The order is that of the full names: a colon comes after a minus. Without one, ExampleLocker_DoAll would wait for ever.
func TestCommonOrderIsThatOfTheFullNames(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.DoAll(t.Context(), []wllock.Resource{{Name: "a", Key: "1"}, {Name: "a-b", Key: "1"}},
		func(ctx context.Context) error {
			require.Equal(t, "test:a:1", heldIn(ctx).Key())
			return nil
		}))
}

func TestNestedGuardsOfAnyOfTheKeysRunThrough(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.DoAll(t.Context(), keys("a", "b", "~c"), func(ctx context.Context) error {
		for _, key := range []string{"a", "b"} {
			require.NoError(t, l.Do(ctx, "n", key, func(ctx context.Context) error {
				require.Equal(t, "test:n:"+key, heldIn(ctx).Key())
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

// A guard that outlives the function keeps its key, and that alone. Its context ends with its own lock, not with the others.
func TestNestedGuardThatOutlivesADoAllKeepsItsKeyOnly(t *testing.T) {
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
		require.ErrorIs(t, l.Do(t.Context(), "n", "a", never(t), wllock.NoWait()), wllock.ErrHeld)
		lostAfter(t, l.Do(t.Context(), "n", "b", func(ctx context.Context) error {
			b.Expire("test:n:b")
			<-ctx.Done()
			return nil
		}, wllock.NoWait()))
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
