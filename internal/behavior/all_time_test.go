package behavior

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestLockTimeMaxRunsFromTheMomentAllKeysAreHeld(t *testing.T) {
	for key, wait := range map[string]time.Duration{"a": 3 * ttl, "b": 5 * ttl, "c": 7 * ttl} { // more than the maximum
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			release := hold(t, lockerOn(t, b), "n", key, wllock.WithLockTimeMax(0))
			begin := time.Now()
			time.AfterFunc(wait, release)
			err := l.DoAll(t.Context(), keys("a", "b", "c"), func(ctx context.Context) error {
				require.InDelta(t, wait, time.Since(begin), float64(ttl/100))
				begin = time.Now()
				<-ctx.Done()
				require.Equal(t, 2*ttl, time.Since(begin))
				require.ErrorIs(t, context.Cause(ctx), wllock.ErrLockTimeMax)
				time.Sleep(time.Nanosecond) // the other keys are due at the same moment, and the return is not to be quicker
				return ctx.Err()
			}, wllock.WithLockTimeMax(2*ttl))
			require.EqualError(t, err, `wllock: hold "test:n:a": lock held for longer than its maximum`+"; context canceled", "said once")
			synctest.Wait()
			require.EqualValues(t, 3, l.Stats().Total.Overstays)
			require.Zero(t, l.Stats().Total.Lost)
			free(t, l, b, "a", "b", "c")
		})
	}
}

func TestShortestLockTimeMaxOfTheNamesEndsTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithName("short", wllock.WithLockTimeMax(ttl)))
		err := l.DoAll(t.Context(), []wllock.Resource{{Name: "short", Key: "k"}, {Name: "n", Key: "k"}}, func(ctx context.Context) error {
			begin := time.Now()
			<-ctx.Done()
			require.Equal(t, ttl, time.Since(begin))
			return context.Cause(ctx)
		})
		require.EqualError(t, err, `wllock: hold "test:short:k": lock held for longer than its maximum`)
		require.EqualValues(t, 1, l.Stats().Names["short"].Overstays)
		require.Zero(t, l.Stats().Names["n"].Overstays)
	})
}

// The first key is free after a while, the second is not: one wait covers both, in both tiers.
func TestOneWaitCoversAllKeys(t *testing.T) {
	const wait = 900 * time.Millisecond
	for tier, own := range map[wllock.Tier]bool{wllock.TierLocal: true, wllock.TierDistributed: false} {
		for _, how := range []string{"WithWait", "the deadline", "WithWait of a name"} {
			bubble(t, string(tier)+" "+how, func(t *testing.T) {
				b := memlock.New()
				l, other := lockerOn(t, b, wllock.WithName("timed", wllock.WithWait(wait))), lockerOn(t, b)
				if own {
					other = l
				}
				all := keys("a", "b")
				ctx, cancel := context.WithCancel(t.Context())
				var opts []wllock.CallOption
				want := wllock.ErrWaitTimeout
				switch how {
				case "WithWait":
					opts = append(opts, wllock.WithWait(wait))
				case "the deadline":
					ctx, cancel = context.WithTimeout(t.Context(), wait)
					want = context.DeadlineExceeded
				default:
					all[1].Name = "timed"
				}
				defer cancel()
				time.AfterFunc(wait*2/3, hold(t, other, all[0].Name, "a"))
				defer hold(t, other, all[1].Name, "b")()
				begin := time.Now()
				err := l.DoAll(ctx, all, never(t), opts...)
				require.Equal(t, wait, time.Since(begin))
				require.ErrorIs(t, err, want)
				var e *wllock.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, "test:"+all[1].Name+":b", e.Key)
				require.Equal(t, tier, e.Tier)
				require.Equal(t, wait, e.Waited)
				require.Equal(t, e.Waited, e.LocalWait+e.DistributedWait)
				require.NoError(t, l.Do(t.Context(), "n", "a", nothing, wllock.NoWait()))
			})
		}
	}
}

func TestNoWaitOfADoAllIsNowOrNeverForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		for _, key := range []string{"a", "b", "c"} {
			release := hold(t, other, "n", key)
			e := errorOf(t, l.DoAll(t.Context(), keys("a", "b", "c"), never(t), wllock.NoWait()), wllock.ErrHeld, key)
			require.Zero(t, e.Waited)
			release()
			free(t, l, b, "a", "b", "c")
		}
	})
}

func TestLossOfAnyKeyEndsTheFunctionsContext(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			own := errors.New("own")
			err := l.DoAll(t.Context(), keys("a", "b", "c"), func(ctx context.Context) error {
				b.Expire("test:n:" + key)
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				<-child.Done()
				require.ErrorIs(t, context.Cause(child), wllock.ErrLeaseLost)
				for _, each := range []string{"a", "b", "c"} {
					h, _ := wllock.HeldKey(ctx, "n", each)
					require.ErrorIs(t, h.Err(), wllock.ErrLeaseLost, "each answers for all")
				}
				require.EqualValues(t, 2, l.Stats().Total.Held)
				return own
			})
			lostAfter(t, err)
			require.ErrorIs(t, err, own)
			require.EqualError(t, err, `wllock: hold "test:n:`+key+`": lease lost`+"; own")
			require.EqualValues(t, 1, l.Stats().Total.Lost)
			synctest.Wait() // for the one that passes the turn of the lost key on
			free(t, l, b, "a", "b", "c")
		})
	}
}

func TestLossIsSaidOnceByADoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			b.Expire("test:n:a")
			b.Expire("test:n:b")
			<-ctx.Done()
			time.Sleep(ttl) // until the other loss is noticed, too
			return context.Cause(ctx)
		})
		require.EqualError(t, err, `wllock: hold "test:n:a": lease lost`, "the first in the common order")
	})
}

// The first key is lost while the second is awaited: the call starts over at once, and does not run without it.
func TestKeyLostBeforeAllAreHeldIsAcquiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		release := hold(t, other, "n", "b", wllock.WithLockTimeMax(0))
		runs := 0
		result := started(l, keys("a", "b"), func(ctx context.Context) error {
			runs++
			return heldIn(ctx).Err()
		})
		b.Expire("test:n:a")
		time.Sleep(ttl) // it is noticed at a renewal
		require.EqualValues(t, 1, l.Stats().Total.Lost)
		require.ErrorIs(t, other.Do(t.Context(), "n", "a", never(t), wllock.NoWait()), wllock.ErrHeld, "it is held again")
		release()
		require.NoError(t, <-result)
		require.Equal(t, 1, runs)
		free(t, l, b, "a", "b")
	})
}

// The backend does not notice that its caller has left: the last key is acquired, but the first is gone.
func TestNoFunctionRunsWithoutTheKeyThatWasLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l := lockerOn(t, lateFor(b, "test:n:b", ttl))
		result := started(l, keys("a", "b"), func(ctx context.Context) error {
			return errors.Join(heldIn(ctx).Err(), ctx.Err())
		})
		b.Expire("test:n:a")
		require.NoError(t, <-result)
		require.EqualValues(t, 1, l.Stats().Total.Lost)
		require.EqualValues(t, 4, l.Stats().Total.Acquired, "each of them twice")
	})
}

func TestKeyLostAgainAndAgainEndsADoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		defer hold(t, lockerOn(t, b), "n", "b", wllock.WithLockTimeMax(0))()
		begin := time.Now()
		var elapsed time.Duration
		result := started(l, keys("a", "b"), never(t), wllock.WithFallback(func(_ context.Context, err error) error {
			elapsed = time.Since(begin)
			return err
		}))
		for i := range 4 {
			require.EqualValues(t, i, l.Stats().Total.Lost)
			b.Expire("test:n:a")
			time.Sleep(ttl)
		}
		err := <-result
		require.EqualValues(t, 4, l.Stats().Total.Lost, "it starts over three times")
		e := errorOf(t, err, wllock.ErrLeaseLost, "a")
		require.NotErrorIs(t, err, context.Canceled)
		require.Equal(t, "acquire", e.Op)
		require.Equal(t, elapsed, e.Waited, "every try is counted: the call did nothing but wait for b")
		require.Equal(t, e.Waited, e.LocalWait+e.DistributedWait)
		synctest.Wait()
		free(t, l, b, "a")
	})
}

// A call that starts over waits for the rest of its time: for the lost key as well, if that has gone to somebody else.
func TestStartingOverIsWithinTheWait(t *testing.T) {
	for key, tier := range map[string]wllock.Tier{"b": wllock.TierDistributed, "a": wllock.TierLocal} {
		bubble(t, key, func(t *testing.T) {
			l, b := newLocker(t)
			defer hold(t, lockerOn(t, b), "n", "b", wllock.WithLockTimeMax(0))()
			begin := time.Now()
			result := started(l, keys("a", "b"), never(t), wllock.WithWait(2*ttl))
			b.Expire("test:n:a")
			if key == "a" {
				defer hold(t, l, "n", "a", wllock.WithLockTimeMax(0))()
			}
			e := errorOf(t, <-result, wllock.ErrWaitTimeout, key)
			require.Equal(t, tier, e.Tier)
			require.Equal(t, 2*ttl, e.Waited)
			require.Equal(t, 2*ttl, time.Since(begin))
		})
	}
}

func TestCloseThatWaitsNoLongerEndsTheContextOfADoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		result := started(l, keys("a", "b"), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(ttl / 10) // until Close has told both
			return context.Cause(ctx)
		})
		ctx := within(t, ttl/10)
		err := l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `2 locks were still held: "test:n:a", "test:n:b": `)
		require.ErrorIs(t, <-result, wllock.ErrClosed)
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestLossOfAnOuterHoldEndsTheWaitOfADoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		defer hold(t, lockerOn(t, b), "n", "b", wllock.WithLockTimeMax(0))()
		lostAfter(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
			b.Expire("test:n:a")
			begin := time.Now()
			errorOf(t, l.DoAll(ctx, keys("a", "b"), never(t)), wllock.ErrLeaseLost, "b")
			require.LessOrEqual(t, time.Since(begin), ttl)
			return nil
		}))
	})
}

func TestCloseSendsAWaitingDoAllAwayAndWaitsForOneInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		release := hold(t, other, "n", "b")
		waiting := started(l, keys("a", "b"), never(t))
		inside := started(l, keys("c", "d"), func(ctx context.Context) error {
			time.Sleep(ttl)
			require.ErrorIs(t, l.Do(ctx, "n", "other", never(t)), wllock.ErrClosed)
			return l.DoAll(ctx, keys("d", "c"), nothing) // nested guards still run
		})
		begin := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, ttl, time.Since(begin))
		require.NoError(t, <-inside)
		errorOf(t, <-waiting, wllock.ErrClosed, "b")
		release()
		free(t, other, b, "a", "b", "c", "d")
	})
}

// The leases of two keys, acquired at different times, expire at different times in an outage.
func TestEveryLockOfADoAllIsDegradedIfOneIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		time.AfterFunc(ttl/10, hold(t, lockerOn(t, b), "n", "b"))
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			require.Equal(t, 0, degraded(t, l, ctx))
			b.Partition(true)
			defer b.Partition(false)
			for degraded(t, l, ctx) == 0 {
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, 1, degraded(t, l, ctx))
			time.Sleep(2 * ttl)
			require.Equal(t, 2, degraded(t, l, ctx))
			return nil
		}))
		require.EqualValues(t, 2, l.Stats().Total.Degraded)
	})
}

// degraded returns how many of the keys a and b are, and checks that each of their locks says so if one is.
func degraded(t *testing.T, l *wllock.Locker, ctx context.Context) (n int) {
	for _, info := range l.Locks(10) {
		if info.Degraded {
			n++
		}
	}
	for _, key := range []string{"a", "b"} {
		h, _ := wllock.HeldKey(ctx, "n", key)
		require.Equal(t, n > 0, h.Degraded())
		require.NoError(t, h.Err())
	}
	return n
}
