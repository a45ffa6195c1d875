package wllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// doublingSlowly is work that takes d of the clock, and does not end sooner.
func doublingSlowly(d time.Duration) func(context.Context, batch) error {
	return func(ctx context.Context, b batch) error { time.Sleep(d); return doubling(ctx, b) }
}

func TestB7EveryCallerCanLeaveItsBatch(t *testing.T) {
	for leaver, what := range []string{"leader", "rider", "last rider"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := newLocker(t)
				release := hold(t, l, "n", "k")
				d := newDesk(l, doublingSlowly(time.Second))
				impatient, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("impatient"))
				defer cancel()
				var all []*customer
				for i := range 3 {
					ctx := t.Context()
					if i == leaver {
						ctx = impatient
					}
					all = append(all, d.comes(ctx, i+1))
				}
				time.Sleep(10 * time.Millisecond)
				release()
				time.Sleep(40 * time.Millisecond)
				synctest.Wait()
				left := all[leaver]
				require.NoError(t, ranWith(left, context.DeadlineExceeded))
				require.EqualError(t, left.err, "wllock: batch \"test:n:k\": context deadline exceeded; impatient")
				e, _ := left.err.(*wllock.Error)
				require.Equal(t, "batch", e.Op)
				require.Equal(t, 10*time.Millisecond, e.Waited)
				time.Sleep(time.Second)
				require.True(t, served(append(all[:leaver:leaver], all[leaver+1:]...)...))
				require.Equal(t, []string{"[1 2 3]"}, d.noted(), "the item of a caller that has left is carried out")
			})
		})
	}
}

func TestB7LeavingWakesNobody(t *testing.T) {
	const riders = 10_000
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(wllock.Unlimited))
		release := hold(t, l, "n", "k")
		d := newDesk(l, doublingSlowly(time.Second), wllock.WithMaxBatch(wllock.Unlimited))
		ctx, cancel := context.WithCancel(t.Context())
		first := d.comes(t.Context(), 0)
		var all []*customer
		for arg := range riders {
			c := &customer{arg: arg}
			all = append(all, c)
			go func() { c.result, c.err = d.call(ctx, arg); c.back.Store(true) }()
		}
		synctest.Wait()
		last := d.comes(t.Context(), riders)
		release()
		synctest.Wait()
		cancel()
		synctest.Wait()
		for _, c := range all {
			require.NoError(t, ranWith(c, context.Canceled))
		}
		require.False(t, first.back.Load() || last.back.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, served(first, last))
	})
}

// A caller that comes back from a batch finds the lock free.
func TestB7TheTurnIsPassedOnBeforeTheCallersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doubling, wllock.NoWait())
		for range 100 {
			_, err := d.call(t.Context(), 1)
			require.NoError(t, err)
		}
		d = newDesk(l, func(context.Context, batch) error { panic("boom") }, wllock.NoWait())
		for arg := range 100 {
			require.NotNil(t, d.comes(t.Context(), arg).panicked)
		}
	})
}

type ownKey struct{}

func TestB8TheContextDescendsFromNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error {
			_, has := ctx.Deadline()
			require.False(t, has)
			require.Nil(t, ctx.Value(ownKey{}))
			_, held := wllock.HeldKey(ctx, "n", "outer")
			require.False(t, held)
			h, _ := wllock.HeldFrom(ctx)
			require.Equal(t, "test:n:k", h.Key())
			require.NoError(t, h.Err())
			for i, one := range b {
				require.Equal(t, i, one.Context().Value(ownKey{}))
			}
			time.Sleep(time.Second) // the callers have left by then
			require.NoError(t, ctx.Err())
			require.Error(t, b[0].Context().Err())
			return doubling(ctx, b)
		})
		outer := hold(t, l, "n", "outer")
		for i := range 2 {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ownKey{}, i), time.Second/2)
			defer cancel()
			d.comes(ctx, i)
		}
		release()
		time.Sleep(2 * time.Second)
		outer()
		require.Equal(t, []string{"[0 1]"}, d.noted())
	})
}

func TestB8GuardsOfTheKeyRunThroughInsideTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		var d *desk
		d = newDesk(l, func(ctx context.Context, b batch) error {
			if len(b) == 1 {
				return doubling(ctx, b) // nested
			}
			outer, _ := wllock.HeldFrom(ctx)
			for _, i := range b {
				var err error
				i.Result, err = d.call(ctx, i.Arg)
				require.NoError(t, err)
			}
			require.NoError(t, l.Do(ctx, "n", "other", nothing))
			return l.Do(ctx, "n", "k", func(ctx context.Context) error {
				inner, _ := wllock.HeldFrom(ctx)
				require.Equal(t, outer.Fence(), inner.Fence())
				return nil
			})
		})
		all := d.come(t.Context(), 1, 2)
		release()
		synctest.Wait()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2]", "[1]", "[2]"}, d.noted())
		require.EqualValues(t, 1, l.Stats().Names["n"].Batches, "nested ones are not counted")
	})
}

func TestB8ACallerInsideItsOwnHoldGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		var ended error
		d := newDesk(l, func(ctx context.Context, b batch) error {
			require.Nil(t, ctx.Value(ownKey{}))
			h, _ := wllock.HeldFrom(ctx)
			require.Equal(t, "test:n:k", h.Key())
			if b[0].Arg == 2 {
				<-ctx.Done()
				ended = context.Cause(ctx)
			}
			return doubling(ctx, b)
		})
		var waiting *customer
		ctx := context.WithValue(t.Context(), ownKey{}, 1)
		err := l.Do(ctx, "n", "k", func(ctx context.Context) error {
			waiting = d.comes(context.Background(), 9)
			r, err := d.call(ctx, 1)
			require.NoError(t, err, "it does not join the line")
			require.Equal(t, 2, r)
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			b.Expire("test:n:k")
			_, err = d.call(short, 2)
			lostAfter(t, err)
			return nil
		})
		lostAfter(t, err)
		require.ErrorIs(t, ended, wllock.ErrLeaseLost, "its context ends with the hold's, not the caller's")
		synctest.Wait()
		require.True(t, served(waiting))
	})
}

func TestB8InsideADoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doubling)
		keys := []wllock.Resource{{Name: "n", Key: "k"}, {Name: "n", Key: "k2"}}
		require.NoError(t, l.DoAll(t.Context(), keys, func(ctx context.Context) error {
			r, err := d.call(ctx, 4)
			require.Equal(t, 8, r)
			return err
		}))
	})
}

// A reader that asks for its exclusive lock could only wait for itself.
func TestB8InsideTheCallersOwnSharedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doubling)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			_, err := d.call(ctx, 1)
			return err
		}, wllock.Shared())
		require.ErrorIs(t, err, wllock.ErrUpgrade)
	})
}
