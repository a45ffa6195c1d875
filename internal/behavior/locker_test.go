package behavior

import (
	"context"
	"errors"
	"fmt"
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

func TestCloseSendsWaitersAwayAndLetsHoldersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		release := hold(t, other, "n", "far")
		held := started(l, keys("near"), func(ctx context.Context) error {
			time.Sleep(3 * ttl)
			return ctx.Err()
		})
		var waiting []<-chan error
		for _, key := range []string{"near", "far", "far"} { // in the local queue; at the backend; behind that one
			waiting = append(waiting, started(l, keys(key), never(t)))
		}
		begin := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 3*ttl, time.Since(begin))
		require.NoError(t, <-held)
		for _, refused := range waiting {
			require.ErrorIs(t, <-refused, wllock.ErrClosed)
		}
		release() // the closed Locker has nothing left in the backend's queue
		require.NoError(t, other.Do(t.Context(), "n", "far", nothing, wllock.NoWait()))
		require.NoError(t, other.Do(t.Context(), "n", "near", nothing, wllock.NoWait()))
		require.NoError(t, l.Close(t.Context()), "again")
		refusal(t, l.Do(t.Context(), "n", "near", never(t)), wllock.ErrClosed, wllock.TierLocal)
	})
}

func TestCloseAbandonsTheLeaseOfAHolderThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		stay := make(chan struct{})
		held := started(l, keys("k"), func(context.Context) error { <-stay; return nil })
		require.ErrorIs(t, l.Close(ended(t)), context.Canceled)
		begin := time.Now()
		require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing))
		require.LessOrEqual(t, time.Since(begin), ttl)
		close(stay)
		lostAfter(t, <-held)
	})
}

func TestCloseReleasesLingeringLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithLinger(time.Hour))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.NoError(t, l.Close(t.Context()))
		require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestCloseClosesOnlyAnOwnedBackend(t *testing.T) {
	b := memlock.New()
	l, err := wllock.New("test", b)
	require.NoError(t, err)
	require.NoError(t, l.Close(t.Context()))
	require.NoError(t, b.Ping(t.Context()))
	l, err = wllock.New("test", b, wllock.WithOwnedBackend())
	require.NoError(t, err)
	require.NoError(t, l.Close(t.Context()))
	require.Error(t, b.Ping(t.Context()))
}

func TestCloseWithNothingHeldSucceedsWhateverItsContext(t *testing.T) {
	ctx := ended(t)
	for range 100 {
		l, err := wllock.New("test", memlock.New())
		require.NoError(t, err)
		require.NoError(t, l.Close(ctx))
	}
}

// stuck is a backend that is silent, and closes after a while.
type stuck struct{ distributed.Backend }

func (stuck) Ping(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

func (s stuck) Close() error {
	time.Sleep(4 * time.Second)
	return s.Backend.Close()
}

// Close keeps to its context also while the backend does not: that goes on closing by itself.
func TestCloseDoesNotWaitForASilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		l, err := wllock.New("test", stuck{memory}, wllock.WithOwnedBackend())
		require.NoError(t, err)
		ctx := within(t, 150*time.Millisecond)
		began := time.Now()
		err = l.Close(ctx)
		require.Equal(t, 400*time.Millisecond, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the backend is still closing")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, memory.Ping(t.Context()), distributed.ErrClosed)
	})
}

// A holder whose lease lingers gives it back when another instance is refused, and the next try has it.
func TestNoWaitIsRefusedALingeringLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var enters atomic.Int32
		b := counted(memlock.New(), &enters)
		a, other := lockerOn(t, b, wllock.WithLinger(10*time.Second)), lockerOn(t, b)
		for range 3 {
			require.NoError(t, a.Do(t.Context(), "n", "k", nothing))
			before := enters.Load()
			require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
			require.EqualValues(t, 1, enters.Load()-before, "who is refused asks once")
			synctest.Wait()
			require.Empty(t, a.Locks(1), "the lease is given back at once")
			require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
			synctest.Wait()
		}
	})
}

func TestNoWaitIsRefusedLingeringPermitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		a, other := lockerOn(t, b, wllock.WithLinger(10*time.Second)), lockerOn(t, b)
		permits := wllock.Permits(4)
		leaves(comes(t, a, permits), comes(t, a, permits), comes(t, a, permits), comes(t, a, permits))
		require.True(t, a.Locks(1)[0].Lingering)
		require.Equal(t, "held", comes(t, other, permits, wllock.NoWait()).state())
		inside := []*guest{}
		for range 4 {
			inside = append(inside, comes(t, other, permits, wllock.NoWait()))
		}
		leaves(inside...)
		synctest.Wait()
		nothingLeft(t, b, a, other)
	})
}

// Those that are refused while the lock is used do not shorten the tenure: callers in line are served, however many others were
// refused. Only the lease does not linger when all have been.
func TestNoWaitBreaksIntoNoTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var enters atomic.Int32
		b := counted(memlock.New(), &enters)
		a := lockerOn(t, b, wllock.WithLinger(10*time.Second), wllock.WithMaxHandoffs(1), wllock.WithMaxTenure(time.Millisecond),
			wllock.WithLeaseTTL(time.Minute))
		other := lockerOn(t, b)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				_ = a.Do(t.Context(), "n", "k", func(context.Context) error {
					for range 20 {
						time.Sleep(time.Millisecond)
						require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
					}
					return nil
				})
			})
		}
		calls.Wait()
		synctest.Wait()
		require.EqualValues(t, 1+50*20, enters.Load(), "one lease served all, and each that was refused has asked once")
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

// probed is a backend on which no lock of one system would work, though all is well otherwise.
type probed struct {
	distributed.Backend
	asked distributed.Probe
}

var errNoRights = errors.New("no rights")

func (p *probed) Probe(_ context.Context, asked distributed.Probe) error {
	p.asked = asked
	return errNoRights
}

// Ping answers whether a lock would work: of this Locker's system, with its TTL.
func TestPingAsksWhetherALockWouldWork(t *testing.T) {
	b := &probed{Backend: memlock.New()}
	require.NoError(t, b.Ping(t.Context()))
	l := lockerOn(t, b, wllock.WithLeaseTTL(7*time.Second))
	err := l.Ping(t.Context())
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorIs(t, err, errNoRights)
	require.Equal(t, distributed.Probe{Key: "test:ping:ping", TTL: 7 * time.Second}, b.asked)
	other, _ := newLocker(t)
	require.NoError(t, other.Ping(t.Context()), "a backend that is no Prober is pinged")
}

func TestHealthFollowsTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		require.True(t, l.Health().Available)
		time.Sleep(time.Minute)
		b.Partition(true)
		began := time.Now()
		for range 3 {
			e := refusal(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable, wllock.TierDistributed)
			require.Positive(t, e.RetryAfter)
		}
		require.EqualValues(t, 3, l.Stats().Total.Unavailable)
		require.ErrorIs(t, l.Ping(t.Context()), wllock.ErrUnavailable)
		h := l.Health()
		require.False(t, h.Available)
		require.ErrorIs(t, h.Err, wllock.ErrUnavailable)
		require.WithinDuration(t, began, h.Since, 0)
		require.Equal(t, h, l.Stats().Backend)
		b.Partition(false)
		time.Sleep(3 * time.Second)
		require.True(t, l.Health().Available, "asked for by nobody")
		require.NoError(t, l.Health().Err)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithThreshold(7), wllock.WithName("own", wllock.WithCallThreshold(3)))
		release := hold(t, l, "n", "k")
		next := started(l, keys("k"), nothing)
		n := l.Stats().Names["n"]
		require.Equal(t, []int64{1, 1}, []int64{n.Held, n.Waiting})
		release()
		require.NoError(t, <-next)
		require.NoError(t, l.Do(t.Context(), "own", "k", nothing))
		s := l.Stats()
		require.Zero(t, s.Total.Held)
		require.Zero(t, s.Total.Waiting)
		require.EqualValues(t, 3, s.Total.Acquired)
		require.EqualValues(t, 1, s.Total.Handoffs)
		require.Equal(t, []int{7, 3, 0}, []int{s.Names["n"].Threshold, s.Names["own"].Threshold, s.Total.Threshold})
		require.NoError(t, l.SetThreshold("n", wllock.Unlimited))
		require.Equal(t, wllock.Unlimited, l.Stats().Names["n"].Threshold)
		require.Equal(t, "test", l.System())
	})
}
