package stack_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestLocalOnlyRunningHoldBecomesDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		own := errors.New("own")
		for _, opts := range [][]wllock.CallOption{nil, {wllock.Shared()}} {
			err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				h, _ := wllock.HeldFrom(ctx)
				fence, until := h.Fence(), h.Until()
				b.Partition(true)
				time.Sleep(time.Until(until) - 1)
				require.False(t, h.Degraded())
				require.NoError(t, h.Err())
				time.Sleep(time.Nanosecond)
				require.True(t, h.Degraded(), "by the clock")
				require.NoError(t, h.Err())
				require.Equal(t, time.Now().Add(ttl), h.Until())
				time.Sleep(3 * ttl)
				require.True(t, h.Degraded())
				require.NoError(t, h.Err())
				require.NoError(t, ctx.Err())
				require.Equal(t, fence, h.Fence(), "it keeps its fence")
				b.Partition(false)
				time.Sleep(ttl)
				require.True(t, h.Degraded(), "an expired lease does not come back")
				return own
			}, opts...)
			require.Equal(t, own, err)
			s := try(l, "k", opts...)
			require.Equal(t, served{fence: s.fence}, s, "the expired lease blocks nobody")
		}
		require.Zero(t, l.Stats().Total.Lost)
		require.EqualValues(t, 2, l.Stats().Total.Degraded)
	})
}

// The next caller after a hold that became degraded waits until the outage is one T old.
func TestLocalOnlyHoldThatBecameDegradedIsNotHandedOnBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		k, err := l.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		b.Partition(true)
		asked := time.Now()
		next := make(chan served)
		go func() { next <- try(l, "k") }()
		time.Sleep(time.Until(k.Until()) + 1)
		require.True(t, k.Degraded())
		require.NoError(t, k.Release(t.Context()))
		s := <-next
		require.Equal(t, served{after: s.after, degraded: true}, s)
		require.GreaterOrEqual(t, time.Since(asked), ttl)
		require.Less(t, time.Since(asked), 2*ttl)
	})
}

func TestLocalOnlyDisownedLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := localOnly(t)
		lostAfter(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			time.Sleep(ttl)
			b.Partition(true)
			time.Sleep(ttl / 2) // renewals fail
			b.Expire("test:n:k")
			b.Partition(false)
			<-ctx.Done()
			require.False(t, h.Degraded())
			require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
			return nil
		}))
		require.Zero(t, l.Stats().Total.Degraded)
	})
}

// What a look at the clocks says before any timer has fired, the timers say, too.
func TestLocalOnlyClockReaderAndTimerAgree(t *testing.T) {
	const ttl = 100 * time.Millisecond
	for range 20 {
		stalled := stalls(t)
		err := readsClock(t, ttl)
		stall := quantile(stalled(), 1)
		if err == nil || t.Failed() {
			return
		}
		require.Greater(t, stall, ttl/8, err) // else the process was stopped, after which it knows nothing of the outage
	}
	t.Skip("the machine is too busy to keep a lease of 100 ms")
}

// readsClock looks at a hold around the end of its lease as fast as it can. It returns an error if the hold was lost. What contradicts a hold
// that is not lost fails the test, on any machine.
func readsClock(t *testing.T, ttl time.Duration) error {
	l, b := localOnly(t, wllock.WithLeaseTTL(ttl))
	defer b.Partition(false)
	return l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		until := h.Until()
		b.Partition(true)
		for time.Now().Before(until.Add(ttl)) {
			now := time.Now() // before Until, which is valid then or later
			if passed := !h.Until().After(now); passed && h.Err() == nil {
				t.Error("Until has passed")
			}
			if h.Err() != nil {
				return h.Err()
			}
		}
		if !h.Degraded() && h.Err() == nil {
			t.Error("not degraded")
		}
		if ctx.Err() != nil && h.Err() == nil {
			t.Error("the context has ended")
		}
		return h.Err()
	})
}

func TestLocalOnlyOverstayingDegradedHoldDoesNotBlockForever(t *testing.T) {
	for _, when := range []string{"from the start", "while it runs"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := localOnly(t)
				if when == "from the start" {
					away(t, l, b)
				}
				stay, first := make(chan struct{}), make(chan error)
				over := make(chan error, 1)
				go func() {
					first <- l.Do(context.Background(), "n", "k", func(ctx context.Context) error {
						<-ctx.Done()
						over <- context.Cause(ctx)
						<-stay
						return nil
					}, wllock.WithLockTimeMax(3*ttl))
				}()
				synctest.Wait()
				b.Partition(true)
				require.Equal(t, served{after: 4 * ttl, degraded: true}, try(l, "k"), "LockTimeMax and one T")
				require.ErrorIs(t, <-over, wllock.ErrLockTimeMax)
				close(stay)
				err := <-first
				lostAfter(t, err)
				require.ErrorIs(t, err, wllock.ErrLockTimeMax)
			})
		})
	}
}
