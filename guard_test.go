package wllock_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestDoReturnsTheFunctionsErrorUnchanged(t *testing.T) {
	l, _ := newLocker(t)
	own := errors.New("out of stock")
	require.Same(t, own, l.Do(t.Context(), "n", "k", func(context.Context) error { return own }))
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
}

// The original lost the results of guarded functions.
func TestCallReturnsTheResult(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	n, err := wllock.Call(t.Context(), l, "n", "k", func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)

	defer hold(t, l, "n", "k")()
	n, err = wllock.Call(t.Context(), l, "n", "k", func(context.Context) (int, error) { return 7, nil })
	require.ErrorIs(t, err, wllock.ErrQueueFull)
	require.Zero(t, n)
}

func TestGuardExcludes(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	n, inside := 0, 0
	count := func(ctx context.Context) error {
		inside++
		runtime.Gosched()
		if inside != 1 {
			t.Error("two inside at once")
		}
		n++
		inside--
		return nil
	}
	guarded := []wllock.Func{l.Guard("n", "k", count), other.Guard("n", "k", count)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 100 {
				if err := guarded[i%2](context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2000, n)
}

func TestWrapTakesTheKeyFromTheArgument(t *testing.T) {
	l, _ := newLocker(t)
	buy := wllock.Wrap(l, "product", func(id string) string { return id },
		func(ctx context.Context, id string) (string, error) {
			h, _ := wllock.HeldFrom(ctx)
			return h.Key(), nil
		})
	got, err := buy(t.Context(), "1000")
	require.NoError(t, err)
	require.Equal(t, "test:product:1000", got)
}

func TestWrapOrAnswersWithOtherwise(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	buy := wllock.WrapOr(l, "product", func(id string) string { return id },
		func(context.Context, string) (string, error) { return "sold", nil },
		func(ctx context.Context, id string, err error) (string, error) {
			_, held := wllock.HeldFrom(ctx)
			require.False(t, held)
			require.ErrorIs(t, err, wllock.ErrQueueFull)
			return "try later: " + id, nil
		})
	got, err := buy(t.Context(), "1")
	require.NoError(t, err)
	require.Equal(t, "sold", got)

	defer hold(t, l, "product", "1")()
	got, err = buy(t.Context(), "1")
	require.NoError(t, err)
	require.Equal(t, "try later: 1", got)
}

// The original ran the degraded body while it still held the local turn.
func TestFallbackHoldsNothing(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	release := hold(t, other, "n", "k")
	answer := errors.New("sold out, try later")
	err := l.Do(t.Context(), "n", "k", never(t), wllock.NoWait(),
		wllock.WithFallback(func(ctx context.Context, reason error) error {
			require.ErrorIs(t, reason, wllock.ErrHeld)
			release()
			require.NoError(t, l.Do(ctx, "n", "k", nothing, wllock.NoWait()), "the local turn is free, too")
			return answer
		}))
	require.Same(t, answer, err)
}

func TestFallbackIsNotRunForTheFunctionsOwnError(t *testing.T) {
	l, _ := newLocker(t)
	own := errors.New("own")
	err := l.Do(t.Context(), "n", "k", func(context.Context) error { return own },
		wllock.WithFallback(func(context.Context, error) error { t.Error("fallback was run"); return nil }))
	require.Same(t, own, err)
}

func TestPanicReleasesBothTiersAndGoesOn(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	require.PanicsWithValue(t, "boom", func() {
		_ = l.Do(t.Context(), "n", "k", func(context.Context) error { panic("boom") })
	})
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

func TestGoexitReleasesBothTiers(t *testing.T) {
	l, b := newLocker(t)
	other := lockerOn(t, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Do(context.Background(), "n", "k", func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

func TestHeldTellsWaitsAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		first, err := other.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		time.AfterFunc(200*time.Millisecond, func() { _ = first.Release(context.Background()) })
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, ok := wllock.HeldFrom(ctx)
			require.True(t, ok)
			require.Greater(t, h.Fence(), first.Fence())
			require.Zero(t, h.LocalWait())
			require.Equal(t, 200*time.Millisecond, h.DistributedWait())
			require.False(t, h.Handoff())
			require.False(t, h.Degraded())
			require.Positive(t, time.Until(h.Until()))
			require.NoError(t, h.Err())
			return nil
		}))
	})
}

func TestUntilMovesWithEveryRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			before := h.Until()
			time.Sleep(5 * ttl)
			require.Greater(t, h.Until().Sub(before), 4*ttl)
			return h.Err()
		}))
	})
}

func TestOptionsCallBeatsNameBeatsDefaultsLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t,
			wllock.WithDefaults(wllock.WithWait(time.Second)),
			wllock.WithName("quick", wllock.WithWait(100*time.Millisecond)),
			wllock.WithName("quick", wllock.WithLockTimeMax(time.Minute)))
		for _, name := range []string{"quick", "other"} {
			defer hold(t, l, name, "k", wllock.WithLockTimeMax(0))()
		}
		waited := func(name string, opts ...wllock.CallOption) time.Duration {
			begin := time.Now()
			require.Error(t, l.Do(t.Context(), name, "k", never(t), opts...))
			return time.Since(begin)
		}
		require.Equal(t, time.Second, waited("other"))
		require.Equal(t, 100*time.Millisecond, waited("quick"))
		require.Equal(t, 50*time.Millisecond, waited("quick", wllock.WithWait(50*time.Millisecond)))
		require.Zero(t, waited("quick", wllock.WithWait(time.Hour), wllock.NoWait()))
		require.Equal(t, time.Millisecond, waited("quick", wllock.NoWait(), wllock.WithWait(time.Millisecond)))
	})
}

func TestThresholdsOfCallNameAndDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(1), wllock.WithName("wide", wllock.WithCallThreshold(3)))
		admitted := func(name string, opts ...wllock.CallOption) int {
			release := hold(t, l, name, "k")
			ctx, cancel := context.WithCancel(t.Context())
			refused := make(chan error, 10)
			for range 10 {
				go func() { refused <- l.Do(ctx, name, "k", never(t), opts...) }()
			}
			synctest.Wait()
			full := len(refused)
			for range full {
				require.ErrorIs(t, <-refused, wllock.ErrQueueFull)
			}
			cancel()
			synctest.Wait()
			release()
			return 10 - full
		}
		require.Equal(t, 1, admitted("n"))
		require.Equal(t, 3, admitted("wide"))
		require.Equal(t, 5, admitted("wide", wllock.WithCallThreshold(5)))
		require.Equal(t, 10, admitted("n", wllock.WithCallThreshold(wllock.Unlimited)))
		require.NoError(t, l.SetThreshold("", 2))
		require.NoError(t, l.SetThreshold("wide", 0))
		require.Equal(t, 2, admitted("n"))
		require.Equal(t, 0, admitted("wide"))
	})
}

func TestRetryAfterFollowsTheMeasuredTurnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(0))
		for range 50 {
			require.NoError(t, l.Do(t.Context(), "n", "any", func(context.Context) error {
				time.Sleep(20 * time.Millisecond)
				return nil
			}))
		}
		defer hold(t, l, "n", "k")()
		var e *wllock.Error
		require.ErrorAs(t, l.Do(t.Context(), "n", "k", never(t)), &e)
		require.InDelta(t, 20*time.Millisecond, e.RetryAfter, float64(time.Millisecond))
	})
}

func TestSharedHoldersTogetherWriterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lockers := []*wllock.Locker{l, lockerOn(t, b)}
		readers, most, writers := 0, 0, 0
		var mu sync.Mutex
		read := func(context.Context) error {
			mu.Lock()
			readers++
			most = max(most, readers)
			if writers > 0 {
				t.Error("reader beside a writer")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			readers--
			mu.Unlock()
			return nil
		}
		write := func(context.Context) error {
			mu.Lock()
			writers++
			if writers > 1 || readers > 0 {
				t.Error("writer not alone")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			writers--
			mu.Unlock()
			return nil
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for range 10 {
					if i%8 == 0 {
						require.NoError(t, lockers[i%2].Do(t.Context(), "n", "k", write))
					} else {
						require.NoError(t, lockers[i%2].Do(t.Context(), "n", "k", read, wllock.Shared()))
					}
				}
			})
		}
		wg.Wait()
		require.Greater(t, most, 10)
	})
}

func TestSyncReleaseReturnsAfterTheAnswer(t *testing.T) {
	l, b := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.SyncRelease()))
	require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

func TestStatsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		go func() { _ = l.Do(context.Background(), "n", "k", nothing) }()
		synctest.Wait()
		s := l.Stats()
		require.EqualValues(t, 1, s.Names["n"].Held)
		require.EqualValues(t, 1, s.Names["n"].Waiting)
		release()
		synctest.Wait()
		s = l.Stats()
		require.Zero(t, s.Total.Held)
		require.Zero(t, s.Total.Waiting)
		require.EqualValues(t, 2, s.Total.Acquired)
		require.EqualValues(t, 1, s.Total.Handoffs)
	})
}

// TestWaitForFellowSharersIsLocal: of a sharer that came too late for a running lease, be it refused or let in.
func TestWaitForFellowSharersIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		release := hold(t, l, "n", "k", wllock.Shared())
		go func() { _ = other.Do(context.Background(), "n", "k", nothing) }() // the lease is contended
		time.Sleep(ttl)
		begin := time.Now()
		_, err := l.Acquire(context.Background(), "n", "k", wllock.Shared(), wllock.WithWait(ttl))
		took := time.Since(begin)
		var e *wllock.Error
		require.ErrorAs(t, err, &e)
		release()
		synctest.Wait()
		require.Equal(t, took, e.Waited)
		require.Equal(t, took, e.LocalWait)
	})
}

func TestWaitOfALateSharerIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		release := hold(t, l, "n", "k", wllock.Shared())
		go func() { _ = other.Do(context.Background(), "n", "k", nothing) }()
		time.Sleep(ttl)
		time.AfterFunc(ttl, release)
		k, err := l.Acquire(context.Background(), "n", "k", wllock.Shared())
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, ttl, k.LocalWait())
	})
}

// panics is a backend that panics a few times.
type panics struct {
	distributed.Backend
	times atomic.Int32
}

func (p *panics) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if p.times.Add(-1) >= 0 {
		panic("backend")
	}
	return p.Backend.Enter(ctx, req)
}

func TestPanicOfTheBackendPassesTheTurnOn(t *testing.T) {
	b := &panics{Backend: memlock.New()}
	b.times.Store(1)
	l, err := wllock.New("test", b)
	require.NoError(t, err)
	require.Panics(t, func() { _ = l.Do(t.Context(), "n", "k", nothing) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = l.Do(ctx, "n", "k", nothing)
	require.NoError(t, err)
	require.NoError(t, l.Close(ctx))
}

// TestLongestTimes: the largest of every length of time is as good as no limit.
func TestLongestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithLeaseTTL(math.MaxInt64), wllock.WithLinger(math.MaxInt64), wllock.WithMaxTenure(math.MaxInt64))
		for range 3 {
			require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return ctx.Err()
			}, wllock.WithLockTimeMax(math.MaxInt64), wllock.WithWait(math.MaxInt64)))
			require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(1)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		release := hold(t, l, "n", "k", wllock.WithLockTimeMax(math.MaxInt64))
		done := make(chan error)
		go func() { done <- l.Do(ctx, "n", "k", nothing, wllock.WithWait(math.MaxInt64)) }()
		time.Sleep(time.Hour)
		release()
		require.NoError(t, <-done)
		cancel()
	})
}
