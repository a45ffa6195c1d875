package behavior

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestBatches(t *testing.T) {
	scene(t, "B1: a batch is the unbroken run behind its leader", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		d, all, release := line(t, l, 3, doubling)
		other := newDesk(l, doubling)
		started(l, keys("k"), func(context.Context) error { d.note("Do"); return nil })
		all = append(all, d.comes(t.Context(), 4))
		all = append(all, other.come(t.Context(), 5, 6)...)
		all = append(all, d.comes(t.Context(), 7))
		release()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]", "Do", "[4]", "[7]"}, d.noted())
		require.Equal(t, []string{"[5 6]"}, other.noted())
	})

	// Riders are taken along after the lease has been acquired: those that come while the leader waits at the backend ride with it, or
	// with the next, if it fails there.
	scene(t, "B2: riders are taken along after the lease", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		release := hold(t, lockerOn(t, b), "n", "k")
		d := newDesk(l, doubling)
		first := d.comes(within(t, 50*time.Millisecond), 1)
		others := d.come(t.Context(), 2, 3)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.True(t, first.back.Load())
		require.Equal(t, 50*time.Millisecond, refused(t, first.err, context.DeadlineExceeded).Waited)
		require.EqualValues(t, 1, l.Stats().Total.Waiting, "the next leader waits at the backend")
		begin := time.Now()
		release()
		require.True(t, served(others...))
		require.Equal(t, []string{"[2 3]"}, d.noted())
		require.Zero(t, time.Since(begin), "nobody waits for a batch to fill")
	})

	scene(t, "B3: NoWait leads or is refused", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		d := newDesk(l, doublingSlowly(time.Second), wllock.NoWait())
		first, second := d.comes(t.Context(), 1), d.comes(t.Context(), 2)
		require.ErrorIs(t, second.err, wllock.ErrHeld)
		time.Sleep(time.Second)
		require.True(t, served(first))
	})

	scene(t, "B3: WithWait ends before the ride and not in it", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		release := hold(t, l, "n", "k")
		d := newDesk(l, doublingSlowly(time.Second), wllock.WithWait(100*time.Millisecond))
		late := d.comes(t.Context(), 1)
		time.Sleep(60 * time.Millisecond)
		all := d.come(t.Context(), 2, 4)
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		require.ErrorIs(t, late.err, wllock.ErrWaitTimeout)
		release()
		synctest.Wait()
		require.Zero(t, l.Stats().Total.Waiting)
		time.Sleep(2 * time.Second)
		require.True(t, served(all...))
		require.Equal(t, []string{"[2 3 4]"}, d.noted())
	})

	scene(t, "B3: Close lets a batch finish", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		_, all, release := line(t, l, 3, doublingSlowly(time.Second), wllock.WithMaxBatch(2))
		release()
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.True(t, served(all[:2]...))
		require.ErrorIs(t, all[2].err, wllock.ErrClosed)
	})

	scene(t, "B4: a batch is one turn", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		d, all, release := line(t, l, 5, func(ctx context.Context, b batch) error {
			s := l.Stats().Names["n"]
			require.EqualValues(t, 1, s.Held)
			require.EqualValues(t, 5-b[len(b)-1].Arg, s.Waiting)
			require.Equal(t, len(b), l.Locks(1)[0].Batch)
			return doubling(ctx, b)
		}, wllock.WithMaxBatch(3))
		release()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]", "[4 5]"}, d.noted())
		require.Less(t, d.fences[0], d.fences[1])
		s := l.Stats().Names["n"]
		require.Equal(t, []uint64{3, 2, 3}, []uint64{s.Acquired, s.Batches, s.Batched})
		require.Zero(t, s.Held)
	})

	scene(t, "B6: the pace is noted per caller", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		for range 20 { // the turn of the blocker counts for less and less
			_, all, release := line(t, l, 10, doublingSlowly(100*time.Millisecond))
			release()
			time.Sleep(200 * time.Millisecond)
			require.True(t, served(all...))
		}
		require.InDelta(t, 10*time.Millisecond, l.Stats().Names["n"].TurnTime, float64(2*time.Millisecond))
		_, all, release := line(t, l, 11, doubling)
		require.InDelta(t, 110*time.Millisecond, asError(t, all[10].err).RetryAfter, float64(20*time.Millisecond))
		release()
	}, wllock.WithThreshold(10))

	// Of callers that have 12 times as long as they need, 1 in 100 is refused at most; of those that have a tenth, 1 in 4 at least.
	scene(t, "B6: WithShedHopeless knows of batches", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		const callers, max, run = 128, 16, 10 * time.Millisecond
		const needed = (callers/max + 1) * run
		group := newDesk(l, doublingSlowly(run), wllock.WithMaxBatch(max), wllock.WithShedHopeless())
		var calls sync.WaitGroup
		var stop atomic.Bool
		for range callers {
			calls.Go(func() {
				for !stop.Load() {
					_, _ = group.call(context.Background(), 1)
				}
			})
		}
		var probes, refused [2]atomic.Int64
		for n := range 1000 {
			kind := n % 2
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), []time.Duration{12 * needed, needed / 10}[kind])
				defer cancel()
				_, err := group.call(ctx, 1)
				if n > 100 { // until then it learns
					probes[kind].Add(1)
					if errors.Is(err, wllock.ErrQueueFull) {
						refused[kind].Add(1)
					}
				}
			})
			time.Sleep(3 * time.Millisecond)
		}
		stop.Store(true)
		calls.Wait()
		t.Logf("refused: %d of %d with time enough, %d of %d without", refused[0].Load(), probes[0].Load(), refused[1].Load(), probes[1].Load())
		require.LessOrEqual(t, 100*refused[0].Load(), probes[0].Load())
		require.GreaterOrEqual(t, 4*refused[1].Load(), probes[1].Load())
	})

	// A caller that comes back from a batch finds the lock free.
	scene(t, "B7: the turn is passed on before the callers are told", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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

// Close that runs out of time ends the function's context, and all callers know why: their own contexts have not ended.
func TestB3CloseWithoutTimeEndsABatch(t *testing.T) {
	for what, cause := range map[string]func(context.Context) error{"error": context.Context.Err, "cause": context.Cause} {
		scene(t, what, func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
			_, all, release := line(t, l, 3, func(ctx context.Context, _ batch) error { <-ctx.Done(); return cause(ctx) })
			release()
			require.ErrorIs(t, l.Close(ended(t)), context.Canceled)
			synctest.Wait()
			for _, c := range all {
				require.True(t, c.back.Load())
				require.ErrorIs(t, c.err, wllock.ErrClosed)
			}
		})
	}
}

func TestB4OneLockTimeMaxForABatch(t *testing.T) {
	for what, own := range map[string]func(context.Context, batch) error{
		"stops":   func(ctx context.Context, _ batch) error { return ctx.Err() },
		"success": doubling, // which stands (rule B9)
	} {
		scene(t, what, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			stays := func(ctx context.Context, b batch) error { <-ctx.Done(); return own(ctx, b) }
			_, all, release := line(t, l, 3, stays, wllock.WithLockTimeMax(2*ttl))
			release()
			time.Sleep(2 * ttl)
			synctest.Wait()
			for _, c := range all {
				if what == "success" {
					require.True(t, served(c))
				} else {
					require.NoError(t, ranWith(c, wllock.ErrLockTimeMax))
					require.NotErrorIs(t, c.err, wllock.ErrLeaseLost)
				}
			}
			require.EqualValues(t, 1, l.Stats().Total.Overstays)
		})
	}
}

// Two instances compete: how many callers one lease serves while the other waits.
func TestB5RidersCountAsHandoffs(t *testing.T) {
	for handoffs, want := range map[int][]string{
		0: {"[1 2 3 4]", "other", "[5 6 7 8]", "[9 10 11 12]"},
		3: {"[1 2 3 4]", "other", "[5 6 7 8]", "[9 10 11 12]"},
		4: {"[1 2 3 4]", "[5 6 7 8]", "other", "[9 10 11 12]"},
		7: {"[1 2 3 4]", "[5 6 7 8]", "other", "[9 10 11 12]"},
		8: {"[1 2 3 4]", "[5 6 7 8]", "[9 10 11 12]", "other"},
	} {
		scene(t, fmt.Sprint("MaxHandoffs ", handoffs), func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			release := hold(t, lockerOn(t, b), "n", "k")
			d := newDesk(l, doublingSlowly(time.Millisecond), wllock.WithMaxBatch(4))
			all := d.come(t.Context(), 1, 12)
			started(lockerOn(t, b), keys("k"), func(context.Context) error { d.note("other"); return nil })
			release()
			time.Sleep(time.Second)
			require.True(t, served(all...))
			require.Equal(t, want, d.noted())
		}, wllock.WithMaxHandoffs(handoffs))
	}
}

func TestB7EveryCallerCanLeaveItsBatch(t *testing.T) {
	for leaver, what := range []string{"leader", "rider", "last rider"} {
		scene(t, what, func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
			release := hold(t, l, "n", "k")
			d := newDesk(l, doublingSlowly(time.Second))
			impatient, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("impatient"))
			defer cancel()
			callers := []context.Context{t.Context(), t.Context(), t.Context()}
			callers[leaver] = impatient
			var all []*customer
			for i, ctx := range callers {
				all = append(all, d.comes(ctx, i+1))
			}
			time.Sleep(10 * time.Millisecond)
			release()
			time.Sleep(40 * time.Millisecond)
			synctest.Wait()
			left := all[leaver]
			require.NoError(t, ranWith(left, context.DeadlineExceeded))
			require.EqualError(t, left.err, "wllock: batch \"test:n:k\": context deadline exceeded; impatient")
			require.Equal(t, "batch", asError(t, left.err).Op)
			require.Equal(t, 10*time.Millisecond, asError(t, left.err).Waited)
			time.Sleep(time.Second)
			require.True(t, served(slices.Delete(all, leaver, leaver+1)...))
			require.Equal(t, []string{"[1 2 3]"}, d.noted(), "the item of a caller that has left is carried out")
		})
	}
}

type (
	item  = wllock.Item[int, int]
	batch = []*item
)

// doubling answers each item with twice its argument.
func doubling(_ context.Context, b batch) error {
	for _, i := range b {
		i.Result = 2 * i.Arg
	}
	return nil
}

// desk is a batch guard for the key n:k that notes which batches it has run, and asks work.
type desk struct {
	call func(context.Context, int) (int, error)
	work func(context.Context, batch) error

	mu      sync.Mutex
	batches []string // the arguments of each
	fences  []uint64
}

func (d *desk) run(ctx context.Context, b batch) error {
	var args []int
	for _, i := range b {
		args = append(args, i.Arg)
	}
	d.note(fmt.Sprint(args))
	d.mu.Lock()
	d.fences = append(d.fences, heldIn(ctx).Fence())
	d.mu.Unlock()
	return d.work(ctx, b)
}

func (d *desk) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, what)
}

func (d *desk) noted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// comes lets one caller begin, in a synctest bubble, and returns when it waits or is back.
func (d *desk) comes(ctx context.Context, arg int) *customer {
	c := &customer{arg: arg}
	go func() {
		defer c.gone.Store(true)
		defer func() {
			if c.panicked = recover(); c.panicked != nil {
				c.back.Store(true)
			}
		}()
		c.result, c.err = d.call(ctx, arg)
		c.back.Store(true)
	}()
	synctest.Wait()
	return c
}

// come lets callers with the arguments from to to begin, one after the other.
func (d *desk) come(ctx context.Context, from, to int) (all []*customer) {
	for arg := from; arg <= to; arg++ {
		all = append(all, d.comes(ctx, arg))
	}
	return all
}

func newDesk(l *wllock.Locker, work func(context.Context, batch) error, opts ...wllock.CallOption) *desk {
	d := &desk{work: work}
	d.call = wllock.WrapBatch(l, "n", func(int) string { return "k" }, d.run, opts...)
	return d
}

// customer is a caller of a batch guard on its own goroutine.
type customer struct {
	arg, result int
	err         error
	panicked    any
	back        atomic.Bool // the call has returned, or panicked
	gone        atomic.Bool // the goroutine has ended; without back, by Goexit
}

// served reports whether each caller has got its own result.
func served(all ...*customer) bool {
	synctest.Wait()
	for _, c := range all {
		if !c.back.Load() || c.err != nil || c.panicked != nil || c.result != 2*c.arg {
			return false
		}
	}
	return true
}

// line is a batch guard with the callers 1 to n, who wait until release, which returns when all that could happen has.
func line(t *testing.T, l *wllock.Locker, n int, work func(context.Context, batch) error, opts ...wllock.CallOption) (
	d *desk, all []*customer, release func()) {
	leave := hold(t, l, "n", "k")
	d = newDesk(l, work, opts...)
	return d, d.come(t.Context(), 1, n), func() {
		leave()
		synctest.Wait()
	}
}

// doublingSlowly is work that takes d of the clock, and does not end sooner.
func doublingSlowly(d time.Duration) func(context.Context, batch) error {
	return func(ctx context.Context, b batch) error { time.Sleep(d); return doubling(ctx, b) }
}
