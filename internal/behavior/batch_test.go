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

func newDesk(l *wllock.Locker, work func(context.Context, batch) error, opts ...wllock.CallOption) *desk {
	d := &desk{work: work}
	d.call = wllock.WrapBatch(l, "n", func(int) string { return "k" }, d.run, opts...)
	return d
}

func (d *desk) run(ctx context.Context, b batch) error {
	var args []int
	for _, i := range b {
		args = append(args, i.Arg)
	}
	held, _ := wllock.HeldFrom(ctx)
	d.note(fmt.Sprint(args))
	d.mu.Lock()
	d.fences = append(d.fences, held.Fence())
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

// customer is a caller of a batch guard on its own goroutine.
type customer struct {
	arg, result int
	err         error
	panicked    any
	back        atomic.Bool // the call has returned, or panicked
	gone        atomic.Bool // the goroutine has ended; without back, by Goexit
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

func TestB1ABatchIsTheUnbrokenRunBehindItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, doubling)
		other := newDesk(l, doubling)
		all := d.come(t.Context(), 1, 3)
		go func() {
			_ = l.Do(context.Background(), "n", "k", func(context.Context) error { d.note("Do"); return nil })
		}()
		synctest.Wait()
		all = append(all, d.comes(t.Context(), 4))
		all = append(all, other.come(t.Context(), 5, 6)...)
		all = append(all, d.comes(t.Context(), 7))
		release()
		synctest.Wait()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]", "Do", "[4]", "[7]"}, d.noted())
		require.Equal(t, []string{"[5 6]"}, other.noted())
	})
}

func TestB1ABatchHasMaxCallers(t *testing.T) {
	for max, want := range map[int][]string{
		1:                {"[1]", "[2]", "[3]", "[4]", "[5]"},
		2:                {"[1 2]", "[3 4]", "[5]"},
		5:                {"[1 2 3 4 5]"},
		wllock.Unlimited: {"[1 2 3 4 5]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := newLocker(t)
			release := hold(t, l, "n", "k")
			d := newDesk(l, doubling, wllock.WithMaxBatch(max))
			all := d.come(t.Context(), 1, 5)
			release()
			synctest.Wait()
			require.True(t, served(all...))
			require.Equal(t, want, d.noted())
		})
	}
}

// Those that come while the leader waits at the backend ride with it.
func TestB2RidersAreTakenAlongAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		release := hold(t, lockerOn(t, b), "n", "k")
		d := newDesk(l, doubling)
		all := d.come(t.Context(), 1, 3)
		require.EqualValues(t, 2, l.Stats().Total.Waiting, "the leader waits at the backend")
		release()
		synctest.Wait()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]"}, d.noted())
	})
}

func TestB2ALeaderThatFailsTakesNobodyWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		release := hold(t, lockerOn(t, b), "n", "k")
		d := newDesk(l, doubling)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		first := d.comes(short, 1)
		others := d.come(t.Context(), 2, 3)
		begin := time.Now()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.True(t, first.back.Load())
		require.ErrorIs(t, first.err, context.DeadlineExceeded)
		e, _ := first.err.(*wllock.Error)
		require.False(t, e.Ran)
		require.Equal(t, 50*time.Millisecond, e.Waited)
		release()
		synctest.Wait()
		require.True(t, served(others...))
		require.Equal(t, []string{"[2 3]"}, d.noted())
		require.Equal(t, 500*time.Millisecond, time.Since(begin))
	})
}

func TestB2NobodyWaitsForABatchToFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doubling)
		begin := time.Now()
		for arg := range 3 {
			require.True(t, served(d.comes(t.Context(), arg)))
		}
		require.Zero(t, time.Since(begin))
		require.Equal(t, []string{"[0]", "[1]", "[2]"}, d.noted())
	})
}

func TestB3TheThresholdIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(50))
		release := hold(t, l, "n", "k")
		d := newDesk(l, doubling)
		all := d.come(t.Context(), 1, 400)
		require.EqualValues(t, 50, l.Stats().Total.Waiting)
		for _, c := range all[50:] {
			require.ErrorIs(t, c.err, wllock.ErrQueueFull)
		}
		require.EqualValues(t, 350, l.Stats().Total.Shed)
		release()
		synctest.Wait()
		require.True(t, served(all[:50]...))
	})
}

func TestB3NoWaitLeadsOrIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		stay := make(chan struct{})
		d := newDesk(l, func(ctx context.Context, b batch) error { <-stay; return doubling(ctx, b) }, wllock.NoWait())
		first, second := d.comes(t.Context(), 1), d.comes(t.Context(), 2)
		require.ErrorIs(t, second.err, wllock.ErrHeld)
		close(stay)
		synctest.Wait()
		require.True(t, served(first))
	})
}

func TestB3WithWaitEndsBeforeTheRideAndNotInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error { time.Sleep(time.Second); return doubling(ctx, b) },
			wllock.WithWait(100*time.Millisecond))
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
}

func TestB3CloseLetsABatchFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error { time.Sleep(time.Second); return doubling(ctx, b) },
			wllock.WithMaxBatch(2))
		all := d.come(t.Context(), 1, 3)
		release()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.True(t, served(all[:2]...))
		require.ErrorIs(t, all[2].err, wllock.ErrClosed)
	})
}

// Close that runs out of time ends the function's context, and all callers know why: their own contexts have not ended.
func TestB3CloseWithoutTimeEndsABatch(t *testing.T) {
	for what, cause := range map[string]func(context.Context) error{"error": context.Context.Err, "cause": context.Cause} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := newLocker(t)
				release := hold(t, l, "n", "k")
				d := newDesk(l, func(ctx context.Context, _ batch) error { <-ctx.Done(); return cause(ctx) })
				all := d.come(t.Context(), 1, 3)
				release()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				synctest.Wait()
				require.ErrorIs(t, l.Close(ended), context.Canceled)
				synctest.Wait()
				for _, c := range all {
					require.True(t, c.back.Load())
					require.ErrorIs(t, c.err, wllock.ErrClosed)
				}
			})
		})
	}
}

func TestB4ABatchIsOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error {
			s := l.Stats().Names["n"]
			require.EqualValues(t, 1, s.Held)
			require.EqualValues(t, 5-b[len(b)-1].Arg, s.Waiting)
			require.Equal(t, len(b), l.Locks(1)[0].Batch)
			return doubling(ctx, b)
		}, wllock.WithMaxBatch(3))
		all := d.come(t.Context(), 1, 5)
		release()
		synctest.Wait()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]", "[4 5]"}, d.noted())
		require.Less(t, d.fences[0], d.fences[1])
		s := l.Stats().Names["n"]
		require.EqualValues(t, 3, s.Acquired)
		require.EqualValues(t, 2, s.Batches)
		require.EqualValues(t, 3, s.Batched)
		require.Zero(t, s.Held)
	})
}

func TestB4OneLockTimeMaxForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, _ batch) error { <-ctx.Done(); return ctx.Err() }, wllock.WithLockTimeMax(2*ttl))
		all := d.come(t.Context(), 1, 3)
		release()
		begin := time.Now()
		time.Sleep(2 * ttl)
		synctest.Wait()
		require.Equal(t, 2*ttl, time.Since(begin))
		for _, c := range all {
			require.NoError(t, ranWith(c, wllock.ErrLockTimeMax))
			require.NotErrorIs(t, c.err, wllock.ErrLeaseLost)
		}
		require.EqualValues(t, 1, l.Stats().Total.Overstays)
	})
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
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t, wllock.WithMaxHandoffs(handoffs))
			rival := lockerOn(t, b)
			release := hold(t, lockerOn(t, b), "n", "k")
			d := newDesk(l, func(ctx context.Context, b batch) error { time.Sleep(time.Millisecond); return doubling(ctx, b) },
				wllock.WithMaxBatch(4))
			all := d.come(t.Context(), 1, 12)
			go func() {
				_ = rival.Do(context.Background(), "n", "k", func(context.Context) error { d.note("other"); return nil })
			}()
			synctest.Wait()
			release()
			time.Sleep(time.Second)
			require.True(t, served(all...))
			require.Equal(t, want, d.noted(), "MaxHandoffs %d", handoffs)
		})
	}
}

func TestB6ThePaceIsNotedPerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(10))
		release := hold(t, l, "n", "k")
		d := newDesk(l, func(ctx context.Context, b batch) error { time.Sleep(100 * time.Millisecond); return doubling(ctx, b) })
		for range 20 { // the turn of the blocker counts for less and less
			all := d.come(t.Context(), 1, 10)
			release()
			time.Sleep(200 * time.Millisecond)
			require.True(t, served(all...))
			release = hold(t, l, "n", "k")
		}
		require.InDelta(t, 10*time.Millisecond, l.Stats().Names["n"].TurnTime, float64(2*time.Millisecond))
		all := d.come(t.Context(), 1, 11)
		e, _ := all[10].err.(*wllock.Error)
		require.InDelta(t, 110*time.Millisecond, e.RetryAfter, float64(20*time.Millisecond))
		release()
	})
}

// batchCrowd has callers in each of so many instances call again and again until stop is closed.
func batchCrowd(calls *sync.WaitGroup, stop <-chan struct{}, instances, callers int, call func(instance int)) {
	for instance := range instances {
		for range callers {
			calls.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						call(instance)
					}
				}
			})
		}
	}
}

// 4 instances with 64 callers each, whose batches of 16 take 1 ms: because riders count as hand-offs, the lease changes after
// MaxHandoffs callers, and nobody waits for longer than the tenures of the others take. All get the same share.
func TestB5BatchesShareTheLockFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, callers, max = 4, 64, 16
		backend := memlock.New()
		var guards []func(context.Context, int) (int, error)
		for range instances {
			guards = append(guards, newDesk(lockerOn(t, backend), doublingSlowly(time.Millisecond), wllock.WithMaxBatch(max)).call)
		}
		var mu sync.Mutex
		var waits []time.Duration
		served := make([]int, instances)
		var calls sync.WaitGroup
		stop := make(chan struct{})
		batchCrowd(&calls, stop, instances, callers, func(instance int) {
			begin := time.Now()
			_, err := guards[instance](context.Background(), 1)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			waits = append(waits, time.Since(begin))
			served[instance]++
		})
		time.Sleep(3 * time.Second)
		close(stop)
		calls.Wait()
		slices.Sort(waits)
		p99 := waits[len(waits)*99/100]
		bound := 2 * (instances - 1) * (wllock.DefaultMaxHandoffs/max + 1) * time.Millisecond
		t.Logf("%d calls in 3 s: %v, p50 %v, p99 %v (bound %v)", len(waits), served, waits[len(waits)/2], p99, bound)
		require.LessOrEqual(t, p99, bound)
		require.Greater(t, len(waits), 3000*max*9/10)
		require.Greater(t, jain(served), 0.98)
	})
}

// jain is 1 if all have the same, and 1/n if one has all (Jain, Chiu, Hawe 1984).
func jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Of callers that have 12 times as long as they need, 1 in 100 is refused at most; of those that have a tenth, 1 in 4 at least.
func TestB6ShedHopelessKnowsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, max, run = 128, 16, 10 * time.Millisecond
		const needed = (callers/max + 1) * run
		l, _ := newLocker(t)
		group := newDesk(l, doublingSlowly(run), wllock.WithMaxBatch(max), wllock.WithShedHopeless())
		var calls sync.WaitGroup
		stop := make(chan struct{})
		batchCrowd(&calls, stop, 1, callers, func(int) { _, _ = group.call(context.Background(), 1) })
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
		close(stop)
		calls.Wait()
		t.Logf("refused: %d of %d with time enough, %d of %d without", refused[0].Load(), probes[0].Load(), refused[1].Load(), probes[1].Load())
		require.LessOrEqual(t, 100*refused[0].Load(), probes[0].Load())
		require.GreaterOrEqual(t, 4*refused[1].Load(), probes[1].Load())
	})
}

// Callers of a cold key in several processes: one computes, and few look again.
func TestCacheFillComputesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, callers = 4, 64
		backend := memlock.New()
		var value, computed, gets atomic.Int64
		get := func() int64 { gets.Add(1); return value.Load() }
		fill := func(_ context.Context, b batch) error {
			v := get()
			if v == 0 {
				computed.Add(1)
				time.Sleep(20 * time.Millisecond)
				v = 42
				value.Store(v)
			}
			for _, i := range b {
				i.Result = int(v)
			}
			return nil
		}
		var calls sync.WaitGroup
		for range instances {
			d := newDesk(lockerOn(t, backend), fill)
			for range callers {
				calls.Go(func() {
					v := get()
					if v == 0 {
						r, err := d.call(context.Background(), 0)
						if err != nil {
							t.Error(err)
						}
						v = int64(r)
					}
					if v != 42 {
						t.Error(v)
					}
				})
			}
		}
		calls.Wait()
		require.EqualValues(t, 1, computed.Load())
		require.LessOrEqual(t, gets.Load(), int64(instances*callers+3*instances))
	})
}
