package stack_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// localOnly returns a Locker with LocalOnly over a memory backend of its own.
func localOnly(t testing.TB, opts ...wllock.Option) (*wllock.Locker, *memlock.Backend) {
	t.Helper()
	b := memlock.New()
	return localOnlyOn(t, b, opts...), b
}

func localOnlyOn(t testing.TB, b *memlock.Backend, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	return lockerOn(t, b, append([]wllock.Option{wllock.WithOutage(wllock.LocalOnly)}, opts...)...)
}

// served is how a call was admitted.
type served struct {
	after    time.Duration
	degraded bool
	fence    uint64
	err      error
}

// try makes a call and returns how it was admitted.
func try(l *wllock.Locker, key string, opts ...wllock.CallOption) (s served) {
	asked := time.Now()
	s.err = l.Do(context.Background(), "n", key, func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		s.after, s.degraded, s.fence = time.Since(asked), h.Degraded(), h.Fence()
		return h.Err()
	}, opts...)
	return s
}

// away disconnects l and waits until it serves without leases.
func away(t testing.TB, l *wllock.Locker, b *memlock.Backend) {
	t.Helper()
	b.Partition(true)
	s := try(l, "away")
	require.Equal(t, served{after: s.after, degraded: true}, s)
}

func TestLocalOnlyShortOutageIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		before := try(l, "k")
		require.NoError(t, before.err)
		b.Partition(true)
		time.AfterFunc(ttl*9/10, func() { b.Partition(false) })
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				s := try(l, strconv.Itoa(i%3))
				require.Equal(t, served{after: s.after, fence: s.fence}, s)
				require.Positive(t, s.fence)
				require.InDelta(t, ttl*9/10, s.after, float64(ttl/10))
			})
		}
		wg.Wait()
		require.Zero(t, l.Stats().Total.Degraded)
		require.Zero(t, l.Stats().Total.Unavailable)
	})
}

func TestLocalOnlyServesWithoutLeaseAfterOneTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		b.Partition(true)
		require.Equal(t, served{after: ttl, degraded: true}, try(l, "k"), "not sooner: others may have leases until then")
		inside := 0
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					inside++
					require.Equal(t, 1, inside)
					h, _ := wllock.HeldFrom(ctx)
					require.True(t, h.Degraded())
					require.Zero(t, h.Fence())
					require.Equal(t, time.Now().Add(ttl), h.Until())
					time.Sleep(time.Millisecond)
					require.True(t, l.Locks(1)[0].Degraded)
					inside--
					return h.Err()
				}))
			})
		}
		wg.Wait()
		require.EqualValues(t, 11, l.Stats().Total.Degraded)
		require.EqualValues(t, 9, l.Stats().Total.Handoffs)
		require.Zero(t, try(l, "other", wllock.NoWait()).after, "at once, from now on")
		require.EqualValues(t, 12, l.Stats().Total.Degraded)
	})
}

func TestLocalOnlyReturnTakesLeasesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l, b := localOnly(t, wllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		before := try(l, "k")
		away(t, l, b)
		release := hold(t, l, "n", "k") // degraded
		b.Partition(false)
		time.Sleep(ttl)
		other := lockerOn(t, b)
		require.NoError(t, try(other, "k").err, "a degraded hold excludes nobody elsewhere")
		require.ErrorIs(t, try(l, "k", wllock.NoWait()).err, wllock.ErrHeld, "but it does here")
		waits := make(chan served)
		go func() { waits <- try(l, "k") }()
		time.Sleep(ttl)
		release()
		s := <-waits
		require.Equal(t, served{after: ttl, fence: s.fence}, s, "the degraded hold is awaited")
		require.Greater(t, s.fence, before.fence)
		synctest.Wait() // for the log
		require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "it is away; locks are local")
		require.Equal(t, 1, strings.Count(log.String(), "level=INFO"))
	})
}

// Nobody calls any more: the return is noticed all the same, by the callers in line.
func TestLocalOnlyReturnIsNoticedWithoutNewCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		away(t, l, b)
		release := hold(t, l, "n", "k")
		waits := make(chan served, 2)
		for range 2 {
			go func() { waits <- try(l, "k") }()
		}
		synctest.Wait()
		b.Partition(false)
		time.Sleep(ttl)
		release()
		for range 2 {
			require.False(t, (<-waits).degraded)
		}
	})
}

// Both sides of a partition work: that is what LocalOnly means.
func TestLocalOnlyPartitionHasTwoSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		one, two := localOnlyOn(t, b), localOnlyOn(t, b)
		release := hold(t, one, "n", "k")
		b.Partition(true)
		s := try(two, "k")
		require.Equal(t, served{after: s.after, degraded: true}, s)
		require.GreaterOrEqual(t, s.after, ttl)
		release()
		require.True(t, try(one, "k").degraded)
	})
}

// A caller in the backend's queue learns of the outage although nothing else asks the backend.
func TestLocalOnlyServesCallersQueuedAtTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		hold(t, lockerOn(t, b), "n", "k", wllock.WithLockTimeMax(0))
		waits := make(chan served, 3)
		for range cap(waits) {
			go func() { waits <- try(l, "k") }()
		}
		time.Sleep(ttl)
		b.Partition(true)
		for range cap(waits) {
			s := <-waits
			require.Equal(t, served{after: s.after, degraded: true}, s)
			require.LessOrEqual(t, s.after, 2*ttl+ttl/2)
		}
		b.Partition(false)
		time.Sleep(ttl)
	})
}

func TestLocalOnlyWaitersLeaveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		b.Partition(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(ttl/5, cancel)
		begin := time.Now()
		require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), context.Canceled)
		require.Equal(t, ttl/5, time.Since(begin))
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(ttl/5))
		require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		require.Equal(t, 2*ttl/5, time.Since(begin))
		err = l.Do(t.Context(), "n", "k", never(t), wllock.NoWait())
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		var e *wllock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 3*ttl/5, e.RetryAfter, "when turns will be served")
		require.Equal(t, 3*ttl/5, try(l, "k", wllock.WithWait(ttl)).after)
	})
}

func TestLocalOnlyCloseDuringAnOutage(t *testing.T) {
	for _, since := range []time.Duration{0, ttl / 2, 2 * ttl} {
		synctest.Test(t, func(t *testing.T) {
			l, b := localOnly(t)
			k, err := l.Acquire(t.Context(), "n", "held")
			require.NoError(t, err)
			b.Partition(true)
			errs := make(chan error, 3)
			for i := range cap(errs) {
				go func() { errs <- l.Do(context.Background(), "n", []string{"a", "held", "b"}[i], nothing) }()
			}
			time.Sleep(since)
			time.AfterFunc(ttl/10, func() { _ = k.Release(context.Background()) }) // while leased, it cannot be confirmed
			begin := time.Now()
			require.NoError(t, l.Close(t.Context()))
			require.LessOrEqual(t, time.Since(begin), ttl/10)
			for range cap(errs) {
				if err := <-errs; since < ttl || err != nil {
					require.ErrorIs(t, err, wllock.ErrClosed)
				}
			}
		})
	}
}

func TestLocalOnlyCloseThatIsCutShortEndsDegradedHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		away(t, l, b)
		k, err := l.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		defer cancel()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, context.Cause(k.Context()), wllock.ErrClosed)
		require.NoError(t, k.Err())
		time.Sleep(ttl)
		require.ErrorIs(t, k.Err(), wllock.ErrLeaseLost)
		require.ErrorIs(t, k.Release(t.Context()), wllock.ErrLeaseLost)
	})
}

func TestLocalOnlySharersDegradeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		away(t, l, b)
		inside := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					inside <- struct{}{}
					h, _ := wllock.HeldFrom(ctx)
					require.True(t, h.Degraded())
					time.Sleep(2 * ttl)
					return h.Err()
				}, wllock.Shared()))
			})
		}
		for range 3 {
			<-inside
		}
		b.Partition(false)
		time.Sleep(ttl)
		late := try(l, "k", wllock.Shared())
		require.Equal(t, served{after: ttl, fence: late.fence}, late, "not beside degraded sharers")
		wg.Wait()
	})
}
