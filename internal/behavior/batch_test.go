package behavior

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestB1ABatchIsTheUnbrokenRunBehindItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d, all, release := line(t, l, 3, doubling)
		other := newDesk(l, doubling)
		go func() {
			_ = l.Do(context.Background(), "n", "k", func(context.Context) error { d.note("Do"); return nil })
		}()
		synctest.Wait()
		all = append(all, d.comes(t.Context(), 4))
		all = append(all, other.come(t.Context(), 5, 6)...)
		all = append(all, d.comes(t.Context(), 7))
		release()
		require.True(t, served(all...))
		require.Equal(t, []string{"[1 2 3]", "Do", "[4]", "[7]"}, d.noted())
		require.Equal(t, []string{"[5 6]"}, other.noted())
	})
}

// Riders are taken along after the lease has been acquired: those that come while the leader waits at the backend ride with it, or
// with the next, if it fails there.
func TestB2RidersAreTakenAlongAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		release := hold(t, lockerOn(t, b), "n", "k")
		d := newDesk(l, doubling)
		first := d.comes(within(t, 50*time.Millisecond), 1)
		others := d.come(t.Context(), 2, 3)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.True(t, first.back.Load())
		require.ErrorIs(t, first.err, context.DeadlineExceeded)
		require.False(t, asError(t, first.err).Ran)
		require.Equal(t, 50*time.Millisecond, asError(t, first.err).Waited)
		require.EqualValues(t, 1, l.Stats().Total.Waiting, "the next leader waits at the backend")
		begin := time.Now()
		release()
		require.True(t, served(others...))
		require.Equal(t, []string{"[2 3]"}, d.noted())
		require.Zero(t, time.Since(begin), "nobody waits for a batch to fill")
	})
}

func TestB3NoWaitLeadsOrIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		d := newDesk(l, doublingSlowly(time.Second), wllock.NoWait())
		first, second := d.comes(t.Context(), 1), d.comes(t.Context(), 2)
		require.ErrorIs(t, second.err, wllock.ErrHeld)
		time.Sleep(time.Second)
		require.True(t, served(first))
	})
}

func TestB3WithWaitEndsBeforeTheRideAndNotInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
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
}

func TestB3CloseLetsABatchFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		_, all, release := line(t, l, 3, doublingSlowly(time.Second), wllock.WithMaxBatch(2))
		release()
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.True(t, served(all[:2]...))
		require.ErrorIs(t, all[2].err, wllock.ErrClosed)
	})
}

// Close that runs out of time ends the function's context, and all callers know why: their own contexts have not ended.
func TestB3CloseWithoutTimeEndsABatch(t *testing.T) {
	for what, cause := range map[string]func(context.Context) error{"error": context.Context.Err, "cause": context.Cause} {
		bubble(t, what, func(t *testing.T) {
			l, _ := newLocker(t)
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

func TestB4ABatchIsOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
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
		require.EqualValues(t, 3, s.Acquired)
		require.EqualValues(t, 2, s.Batches)
		require.EqualValues(t, 3, s.Batched)
		require.Zero(t, s.Held)
	})
}

func TestB4OneLockTimeMaxForABatch(t *testing.T) {
	for what, own := range map[string]func(context.Context, batch) error{
		"stops":   func(ctx context.Context, _ batch) error { return ctx.Err() },
		"success": doubling, // which stands (rule B9)
	} {
		bubble(t, what, func(t *testing.T) {
			l, _ := newLocker(t)
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
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t, wllock.WithMaxHandoffs(handoffs))
			rival := lockerOn(t, b)
			release := hold(t, lockerOn(t, b), "n", "k")
			d := newDesk(l, doublingSlowly(time.Millisecond), wllock.WithMaxBatch(4))
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
	})
}

// Of callers that have 12 times as long as they need, 1 in 100 is refused at most; of those that have a tenth, 1 in 4 at least.
func TestB6ShedHopelessKnowsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, max, run = 128, 16, 10 * time.Millisecond
		const needed = (callers/max + 1) * run
		l, _ := newLocker(t)
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
}

func TestB7EveryCallerCanLeaveItsBatch(t *testing.T) {
	for leaver, what := range []string{"leader", "rider", "last rider"} {
		bubble(t, what, func(t *testing.T) {
			l, _ := newLocker(t)
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
