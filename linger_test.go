package wllock_test

import (
	"context"
	"errors"
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

// asking is a backend that counts what it is asked.
type asking struct {
	distributed.Backend
	enters atomic.Int32
}

func (b *asking) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	b.enters.Add(1)
	return b.Backend.Enter(ctx, req)
}

// reticent is a backend that tells no holder that somebody was refused, as most do not.
type reticent struct{ asking }

type reticentLease struct{ distributed.AsyncLease }

func (l reticentLease) Unwrap() distributed.Lease { return l.AsyncLease }
func (reticentLease) Wanted() bool                { return false }

func (b *reticent) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	lease, place, err := b.asking.Enter(ctx, req)
	if errors.Is(err, distributed.ErrHeld) {
		return nil, nil, distributed.ErrHeld
	}
	if lease != nil {
		lease = reticentLease{lease.(distributed.AsyncLease)}
	}
	return lease, place, err
}

// A holder whose lease lingers gives it back when another instance is refused, and the next try has it.
func TestNoWaitIsRefusedALingeringLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &asking{Backend: memlock.New()}
		a, other := lockerOn(t, b, wllock.WithLinger(10*time.Second)), lockerOn(t, b)
		for range 3 {
			require.NoError(t, a.Do(t.Context(), "n", "k", nothing))
			before := b.enters.Load()
			require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
			require.EqualValues(t, 1, b.enters.Load()-before, "who is refused asks once")
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
		b := &asking{Backend: memlock.New()}
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
		require.EqualValues(t, 1+50*20, b.enters.Load(), "one lease served all, and each that was refused has asked once")
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

// Over a backend that tells no holder, instances that linger themselves do so with a place, once per T.
func TestARefusalIsToldWithAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &reticent{asking{Backend: memlock.New()}}
		a, other := lockerOn(t, b, wllock.WithLinger(time.Minute)), lockerOn(t, b, wllock.WithLinger(time.Minute))
		require.NoError(t, a.Do(t.Context(), "n", "k", nothing))
		require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
		synctest.Wait()
		require.Empty(t, a.Locks(1), "the lease is given back at once")
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))

		release := hold(t, a, "n", "k")
		before := b.enters.Load()
		for range 100 {
			require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
			time.Sleep(ttl / 25)
		}
		require.EqualValues(t, 100+3, b.enters.Load()-before, "once per T, and once before")
		release()
	})
}
