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
		scene(t, key, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			begin := time.Now()
			time.AfterFunc(wait, hold(t, lockerOn(t, b), "n", key, forever))
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

func TestTimesOfADoAll(t *testing.T) {
	scene(t, "the shortest LockTimeMax of the names ends the function", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		err := l.DoAll(t.Context(), []wllock.Resource{{Name: "short", Key: "k"}, {Name: "n", Key: "k"}}, func(ctx context.Context) error {
			require.Equal(t, ttl, elapsed(func() { <-ctx.Done() }))
			return context.Cause(ctx)
		})
		require.EqualError(t, err, `wllock: hold "test:short:k": lock held for longer than its maximum`)
		require.EqualValues(t, 1, l.Stats().Names["short"].Overstays)
		require.Zero(t, l.Stats().Names["n"].Overstays)
	}, wllock.WithName("short", wllock.WithLockTimeMax(ttl)))

	pair(t, "NoWait is now or never for each key", func(t *testing.T, l, other *wllock.Locker, b *memlock.Backend) {
		for _, key := range []string{"a", "b", "c"} {
			release := hold(t, other, "n", key)
			e := errorOf(t, l.DoAll(t.Context(), keys("a", "b", "c"), never(t), wllock.NoWait()), wllock.ErrHeld, key)
			require.Zero(t, e.Waited)
			release()
			free(t, l, b, "a", "b", "c")
		}
	})

	scene(t, "Close that waits no longer ends its context", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		result := started(l, keys("a", "b"), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(ttl / 10) // until Close has told both
			return context.Cause(ctx)
		})
		err := l.Close(within(t, ttl/10))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `2 locks were still held: "test:n:a", "test:n:b": `)
		require.ErrorIs(t, <-result, wllock.ErrClosed)
		require.NoError(t, l.Close(t.Context()))
	})

	pair(t, "Close sends one away that waits, and waits for one inside", func(t *testing.T, l, other *wllock.Locker, b *memlock.Backend) {
		release := hold(t, other, "n", "b")
		waiting := started(l, keys("a", "b"), never(t))
		inside := started(l, keys("c", "d"), func(ctx context.Context) error {
			time.Sleep(ttl)
			require.ErrorIs(t, l.Do(ctx, "n", "other", never(t)), wllock.ErrClosed)
			return l.DoAll(ctx, keys("d", "c"), nothing) // nested guards still run
		})
		require.Equal(t, ttl, elapsed(func() { require.NoError(t, l.Close(t.Context())) }))
		require.NoError(t, <-inside)
		errorOf(t, <-waiting, wllock.ErrClosed, "b")
		release()
		free(t, other, b, "a", "b", "c", "d")
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
				ctx, want := t.Context(), wllock.ErrWaitTimeout
				var opts []wllock.CallOption
				switch how {
				case "WithWait":
					opts = append(opts, wllock.WithWait(wait))
				case "the deadline":
					ctx, want = within(t, wait), context.DeadlineExceeded
				default:
					all[1].Name = "timed"
				}
				time.AfterFunc(wait*2/3, hold(t, other, all[0].Name, "a"))
				defer hold(t, other, all[1].Name, "b")()
				begin := time.Now()
				err := l.DoAll(ctx, all, never(t), opts...)
				require.Equal(t, wait, time.Since(begin))
				e := refusal(t, err, want, tier)
				require.Equal(t, "test:"+all[1].Name+":b", e.Key)
				require.Equal(t, wait, e.Waited)
				require.NoError(t, l.Do(t.Context(), "n", "a", nothing, wllock.NoWait()))
			})
		}
	}
}

func TestLossInADoAll(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		scene(t, "that of "+key+" ends the function's context", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			own := errors.New("own")
			err := l.DoAll(t.Context(), keys("a", "b", "c"), func(ctx context.Context) error {
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				loses(child, b, key)
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

	scene(t, "it is said once", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		err := l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			b.Expire("test:n:a")
			loses(ctx, b, "b")
			time.Sleep(ttl) // until the other loss is noticed, too
			return context.Cause(ctx)
		})
		require.EqualError(t, err, `wllock: hold "test:n:a": lease lost`, "the first in the common order")
	})

	// The first key is lost while the second is awaited: the call starts over at once, and does not run without it.
	pair(t, "a key that is lost before all are held is acquired again", func(t *testing.T, l, other *wllock.Locker, b *memlock.Backend) {
		release := hold(t, other, "n", "b", forever)
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

	// The backend does not notice that its caller has left: the last key is acquired, but the first is gone.
	bubble(t, "no function runs without the key that was lost meanwhile", func(t *testing.T) {
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

	scene(t, "a key that is lost again and again ends it", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		defer hold(t, lockerOn(t, b), "n", "b", forever)()
		begin := time.Now()
		var took time.Duration
		result := started(l, keys("a", "b"), never(t), wllock.WithFallback(func(_ context.Context, err error) error {
			took = time.Since(begin)
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
		require.Equal(t, took, e.Waited, "every try is counted: the call did nothing but wait for b")
		synctest.Wait()
		free(t, l, b, "a")
	})

	scene(t, "that of an outer hold ends its wait", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		defer hold(t, lockerOn(t, b), "n", "b", forever)()
		lostAfter(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
			b.Expire("test:n:a")
			require.LessOrEqual(t, elapsed(func() { errorOf(t, l.DoAll(ctx, keys("a", "b"), never(t)), wllock.ErrLeaseLost, "b") }), ttl)
			return nil
		}))
	})
}

// A call that starts over waits for the rest of its time: for the lost key as well, if that has gone to somebody else.
func TestStartingOverIsWithinTheWait(t *testing.T) {
	for key, tier := range map[string]wllock.Tier{"b": wllock.TierDistributed, "a": wllock.TierLocal} {
		scene(t, key, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			defer hold(t, lockerOn(t, b), "n", "b", forever)()
			begin := time.Now()
			result := started(l, keys("a", "b"), never(t), wllock.WithWait(2*ttl))
			b.Expire("test:n:a")
			if key == "a" {
				defer hold(t, l, "n", "a", forever)()
			}
			e := errorOf(t, <-result, wllock.ErrWaitTimeout, key)
			require.Equal(t, tier, e.Tier)
			require.Equal(t, 2*ttl, e.Waited)
			require.Equal(t, 2*ttl, time.Since(begin))
		})
	}
}

// The leases of two keys, acquired at different times, expire at different times in an outage.
func TestEveryLockOfADoAllIsDegradedIfOneIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		time.AfterFunc(ttl/10, hold(t, lockerOn(t, b), "n", "b"))
		inside(t, l, keys("a", "b"), func(ctx context.Context) {
			require.Equal(t, 0, degraded(t, l, ctx))
			b.Partition(true)
			defer b.Partition(false)
			for degraded(t, l, ctx) == 0 {
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, 1, degraded(t, l, ctx))
			time.Sleep(2 * ttl)
			require.Equal(t, 2, degraded(t, l, ctx))
		})
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
