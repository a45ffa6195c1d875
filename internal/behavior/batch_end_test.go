package behavior

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

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
				require.Equal(t, outer.Fence(), heldIn(ctx).Fence())
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
			require.Equal(t, "test:n:k", heldIn(ctx).Key())
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

func TestB8InsideTheCallersOwnLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doubling)
		inside := func(ctx context.Context) error {
			r, err := d.call(ctx, 4)
			require.True(t, r == 8 || err != nil)
			return err
		}
		require.NoError(t, l.DoAll(t.Context(), keys("k", "k2"), inside))
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", inside, wllock.Shared()), wllock.ErrUpgrade, "it could only wait for itself")
		d = newDesk(l, func(context.Context, batch) error { panic("boom") })
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error { // rule B10
			p, _ := d.comes(ctx, 1).panicked.(*wllock.BatchPanic)
			require.Equal(t, "boom", p.Value)
			require.NoError(t, p.Unwrap())
			return nil
		}))
	})
}

func TestB9ErrorsOfOneAndOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soldOut, broken := errors.New("sold out"), errors.New("broken")
		all := batchOf(t, 3, func(ctx context.Context, b batch) error {
			b[1].Err = soldOut
			return doubling(ctx, b)
		})
		require.True(t, served(all[0], all[2]))
		require.Equal(t, soldOut, all[1].err)
		require.Equal(t, 4, all[1].result, "with its error")
		for _, c := range batchOf(t, 3, func(ctx context.Context, b batch) error {
			b[1].Err = soldOut
			return errors.Join(doubling(ctx, b), broken)
		}) {
			require.EqualError(t, c.err, "broken")
			require.Zero(t, c.result)
		}
	})
}

func TestB9NobodyIsToldSuccessOfALostLease(t *testing.T) {
	for what, own := range map[string]error{"nil": nil, "error": errors.New("own")} {
		bubble(t, what, func(t *testing.T) {
			l, b := newLocker(t)
			_, all, release := line(t, l, 3, func(ctx context.Context, all batch) error {
				b.Expire("test:n:k")
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
				_ = doubling(ctx, all)
				return own
			})
			release()
			time.Sleep(ttl)
			synctest.Wait()
			for _, c := range all {
				require.NoError(t, ranWith(c, wllock.ErrLeaseLost))
				if own != nil {
					require.ErrorIs(t, c.err, own)
				}
			}
			require.EqualValues(t, 1, l.Stats().Total.Lost)
		})
	}
}

// A function that does not come back after a lost lease keeps its callers, but not the lock.
func TestB9AHangingFunctionDoesNotKeepTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		release := hold(t, l, "n", "k")
		stay := make(chan struct{})
		d := newDesk(l, func(context.Context, batch) error { <-stay; return nil }, wllock.WithMaxBatch(2))
		ctx := within(t, 5*ttl)
		all := append(d.come(t.Context(), 1, 1), d.comes(ctx, 2))
		next := newDesk(l, doubling)
		other := next.comes(t.Context(), 3)
		release()
		synctest.Wait()
		b.Expire("test:n:k")
		time.Sleep(ttl)
		synctest.Wait()
		require.True(t, served(other))
		require.False(t, all[0].back.Load() || all[1].back.Load())
		time.Sleep(5 * ttl)
		require.NoError(t, ranWith(all[1], context.DeadlineExceeded))
		close(stay)
		synctest.Wait()
		require.NoError(t, ranWith(all[0], wllock.ErrLeaseLost))
	})
}

// Close waits for a function that has lost its lock, if all of its callers have left: nobody else does.
func TestB9CloseWaitsForTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		d := newDesk(l, doublingSlowly(10*ttl))
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		c := d.comes(ctx, 1)
		b.Expire("test:n:k")
		time.Sleep(2 * ttl)
		require.NoError(t, ranWith(c, context.DeadlineExceeded))
		require.Zero(t, l.Stats().Total.Held)
		short := within(t, ttl)
		require.ErrorIs(t, l.Close(short), context.DeadlineExceeded)
		begin := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 7*ttl, time.Since(begin))
	})
}

func TestB10APanicGoesOnInEveryCaller(t *testing.T) {
	boom := errors.New("boom")
	for _, n := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			for _, c := range batchOf(t, n, func(context.Context, batch) error { panic(boom) }) {
				p, ok := c.panicked.(*wllock.BatchPanic)
				require.True(t, ok, "%v", c.panicked)
				require.Equal(t, boom, p.Value)
				require.ErrorIs(t, p, boom)
				require.Contains(t, string(p.Stack), "TestB10APanicGoesOnInEveryCaller")
				require.Contains(t, p.Error(), "boom")
			}
			for _, c := range batchOf(t, n, func(context.Context, batch) error { runtime.Goexit(); return nil }) {
				require.True(t, c.gone.Load())
				require.False(t, c.back.Load())
			}
		})
	}
}

// A panic that no caller is left to see ends the process, as that of any goroutine does.
func TestB10APanicThatNobodySeesEndsTheProcess(t *testing.T) {
	if os.Getenv("WLLOCK_TEST_PANIC") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "WLLOCK_TEST_PANIC=1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "panic: ")
		require.Contains(t, string(out), "nobody is left")
		return
	}
	l, _ := newLocker(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	d := newDesk(l, func(context.Context, batch) error { cancel(); <-left; panic("nobody is left") })
	_, err := d.call(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	close(left)
	time.Sleep(time.Minute)
}

func TestB11TheFallbackIsForTheRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instead, broken := errors.New("instead"), errors.New("broken")
		l, _ := newLocker(t, wllock.WithThreshold(2))
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(context.Context, batch) error { time.Sleep(time.Second); return broken },
			wllock.WithFallback(func(_ context.Context, err error) error { return errors.Join(instead, err) }))
		ctx := within(t, 100*time.Millisecond)
		all := append(d.come(t.Context(), 1, 1), d.comes(ctx, 2), d.comes(t.Context(), 3))
		require.ErrorIs(t, all[2].err, instead)
		require.ErrorIs(t, all[2].err, wllock.ErrQueueFull)
		release()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, broken, all[0].err)
		require.NoError(t, ranWith(all[1], context.DeadlineExceeded))
		require.NotErrorIs(t, all[1].err, instead)
	})
}

func TestB11SyncReleaseWaitsForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		_, all, release := line(t, l, 3, func(ctx context.Context, all batch) error {
			b.Expire("test:n:k") // only the answer to the release tells
			return doubling(ctx, all)
		}, wllock.SyncRelease())
		release()
		for _, c := range all {
			require.True(t, c.back.Load())
			require.ErrorIs(t, c.err, wllock.ErrLeaseLost)
		}
	})
}

func TestB11LocalOnlyIsAsForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		b.Partition(true)
		degraded := false
		d := newDesk(l, func(ctx context.Context, b batch) error {
			h, _ := wllock.HeldFrom(ctx)
			degraded = h.Degraded() && h.Fence() == 0
			return doubling(ctx, b)
		})
		all := d.come(t.Context(), 1, 3)
		time.Sleep(10 * ttl)
		synctest.Wait()
		require.True(t, served(all...))
		require.True(t, degraded)
		require.Equal(t, []string{"[1 2 3]"}, d.noted())
		b.Partition(false)
		time.Sleep(10 * ttl)
	})
}

func TestB12MistakesAreOneCallersOwn(t *testing.T) {
	l, _ := newLocker(t)
	guard := wllock.WrapBatch(l, "n", func(key string) string {
		if key == "panic" {
			panic("in key")
		}
		return key
	}, func(context.Context, []*wllock.Item[string, int]) error { return nil })
	_, err := guard(t.Context(), "")
	require.ErrorIs(t, err, wllock.ErrInvalidKey)
	require.PanicsWithValue(t, "in key", func() { _, _ = guard(t.Context(), "panic") })
	_, err = guard(nil, "k") //nolint:staticcheck // the mistake that is tested
	require.EqualError(t, err, `wllock: context is nil ("n:k")`)
	_, err = guard(t.Context(), "k")
	require.NoError(t, err)
	for _, wrong := range []int{0, -2} {
		_, err = newDesk(l, doubling, wllock.WithMaxBatch(wrong)).call(t.Context(), 1)
		require.ErrorContains(t, err, "want 1 or more, or Unlimited")
	}
	_, err = newDesk(l, doubling, wllock.Shared()).call(t.Context(), 1)
	require.EqualError(t, err, "wllock: a batch guard is exclusive: it cannot be Shared")
	shared, _ := newLocker(t, wllock.WithName("n", wllock.Shared()))
	_, err = newDesk(shared, doubling).call(t.Context(), 1)
	require.ErrorContains(t, err, "it cannot be Shared")
	require.Zero(t, shared.Stats().Total.Acquired)
	_, err = wllock.WrapBatch[string, int](l, "n", nil, nil)(t.Context(), "k")
	require.EqualError(t, err, `wllock: function is nil ("n")`)
	require.EqualValues(t, 1, l.Stats().Total.Acquired)
}

// A context that outlives the batch keeps no item.
func TestB12AnItemLeavesNoMemory(t *testing.T) {
	l, _ := newLocker(t)
	var items []weak.Pointer[wllock.Item[int, int]]
	var outlives context.Context
	d := newDesk(l, func(ctx context.Context, b batch) error {
		outlives = ctx
		for _, i := range b {
			items = append(items, weak.Make(i))
		}
		return nil
	})
	for range 3 {
		_, err := d.call(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return items[0].Value() == nil && items[1].Value() == nil && items[2].Value() == nil
	}, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(outlives)
}
