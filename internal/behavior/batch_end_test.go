package behavior

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

type ownKey struct{}

func TestB8(t *testing.T) {
	scene(t, "the context descends from no caller", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error {
			_, has := ctx.Deadline()
			require.False(t, has)
			require.Nil(t, ctx.Value(ownKey{}))
			_, held := wllock.HeldKey(ctx, "n", "outer")
			require.False(t, held)
			require.Equal(t, "test:n:k", heldIn(ctx).Key())
			require.NoError(t, heldIn(ctx).Err())
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
			d.comes(context.WithValue(within(t, time.Second/2), ownKey{}, i), i)
		}
		release()
		time.Sleep(2 * time.Second)
		outer()
		require.Equal(t, []string{"[0 1]"}, d.noted())
	})

	scene(t, "guards of the key run through inside the function", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		var d *desk
		d, all, release := line(t, l, 2, func(ctx context.Context, b batch) error {
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
		release()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2]", "[1]", "[2]"}, d.noted())
		require.EqualValues(t, 1, l.Stats().Names["n"].Batches, "nested ones are not counted")
	})

	scene(t, "a caller inside its own hold goes alone", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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

	scene(t, "inside the caller's own locks", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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

func TestB9(t *testing.T) {
	for what, own := range map[string]error{"nil": nil, "error": errors.New("own")} {
		scene(t, "nobody is told success of a lost lease: "+what, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			_, all, release := line(t, l, 3, func(ctx context.Context, all batch) error {
				loses(ctx, b, "k")
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

	bubble(t, "errors of one and of all", func(t *testing.T) {
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

	// A function that does not come back after a lost lease keeps its callers, but not the lock.
	scene(t, "a hanging function does not keep the lock", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		release := hold(t, l, "n", "k")
		stay := make(chan struct{})
		d := newDesk(l, func(context.Context, batch) error { <-stay; return nil }, wllock.WithMaxBatch(2))
		all := append(d.come(t.Context(), 1, 1), d.comes(within(t, 5*ttl), 2))
		other := newDesk(l, doubling).comes(t.Context(), 3)
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

	// Close waits for a function that has lost its lock, if all of its callers have left: nobody else does.
	scene(t, "Close waits for the function", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		d := newDesk(l, doublingSlowly(10*ttl))
		c := d.comes(within(t, ttl), 1)
		b.Expire("test:n:k")
		time.Sleep(2 * ttl)
		require.NoError(t, ranWith(c, context.DeadlineExceeded))
		require.Zero(t, l.Stats().Total.Held)
		require.ErrorIs(t, l.Close(within(t, ttl)), context.DeadlineExceeded)
		require.Equal(t, 7*ttl, elapsed(func() { require.NoError(t, l.Close(t.Context())) }))
	})
}

func TestB10APanicGoesOnInEveryCaller(t *testing.T) {
	boom := errors.New("boom")
	for _, n := range []int{1, 10} {
		bubble(t, strconv.Itoa(n), func(t *testing.T) {
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

func TestB11(t *testing.T) {
	bubble(t, "the fallback is for the refused", func(t *testing.T) {
		instead, broken := errors.New("instead"), errors.New("broken")
		l, _ := newLocker(t, wllock.WithThreshold(2))
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(context.Context, batch) error { time.Sleep(time.Second); return broken },
			wllock.WithFallback(func(_ context.Context, err error) error { return errors.Join(instead, err) }))
		all := append(d.come(t.Context(), 1, 1), d.comes(within(t, 100*time.Millisecond), 2), d.comes(t.Context(), 3))
		require.ErrorIs(t, all[2].err, instead)
		require.ErrorIs(t, all[2].err, wllock.ErrQueueFull)
		release()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, broken, all[0].err)
		require.NoError(t, ranWith(all[1], context.DeadlineExceeded))
		require.NotErrorIs(t, all[1].err, instead)
	})

	scene(t, "SyncRelease waits for the answer", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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

	scene(t, "LocalOnly is as for a turn", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		b.Partition(true)
		degraded := false
		d := newDesk(l, func(ctx context.Context, b batch) error {
			degraded = heldIn(ctx).Degraded() && heldIn(ctx).Fence() == 0
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
	}, wllock.WithOutage(wllock.LocalOnly))
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

// ranWith returns the error of a caller whose batch has begun, or nil.
func ranWith(c *customer, want error) error {
	synctest.Wait()
	e, ok := errors.AsType[*wllock.Error](c.err)
	switch {
	case !c.back.Load():
		return errors.New("not back")
	case !ok || !e.Ran || !errors.Is(c.err, want):
		return fmt.Errorf("%v; want %v, with Ran", c.err, want)
	case c.result != 0:
		return fmt.Errorf("result %d", c.result)
	}
	return nil
}

// batchOf runs one batch of the arguments from 1 to n.
func batchOf(t *testing.T, n int, work func(context.Context, batch) error) []*customer {
	t.Helper()
	l, _ := newLocker(t)
	d, all, release := line(t, l, n, work)
	release()
	require.Len(t, d.noted(), 1)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "the lock is free")
	return all
}
