package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

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
