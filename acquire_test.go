package wllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// The Java original's nested guards blocked themselves and then freed the outer lock.
func TestGuardsAreReentrantAtAnyDepth(t *testing.T) {
	l, _ := newLocker(t, wllock.WithThreshold(0))
	var fences []uint64
	var down func(depth int) wllock.Func
	down = func(depth int) wllock.Func {
		return func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			fences = append(fences, h.Fence())
			if depth == 0 {
				return nil
			}
			require.NoError(t, l.Do(ctx, "n", "k", down(depth-1)))
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrQueueFull, "the outer lock is still held")
			return nil
		}
	}
	require.NoError(t, l.Do(t.Context(), "n", "k", down(3)))
	require.Len(t, fences, 4)
	for _, f := range fences {
		require.Equal(t, fences[0], f)
	}
}

func TestNestedGuardBehindAnotherLockIsTheInnermost(t *testing.T) {
	l, _ := newLocker(t)
	at := func(ctx context.Context) string {
		h, _ := wllock.HeldFrom(ctx)
		return h.Key()
	}
	require.NoError(t, l.Do(t.Context(), "n", "a", func(ctx context.Context) error {
		return l.Do(ctx, "n", "b", func(ctx context.Context) error {
			require.Equal(t, "test:n:b", at(ctx))
			return l.Do(ctx, "n", "a", func(ctx context.Context) error {
				require.Equal(t, "test:n:a", at(ctx))
				b, ok := wllock.HeldKey(ctx, "n", "b")
				require.True(t, ok)
				require.Equal(t, "test:n:b", b.Key())
				_, ok = wllock.HeldKey(ctx, "n", "c")
				require.False(t, ok)
				return nil
			})
		})
	}))
}

func TestNestedGuardPinsTheHoldPastItsOuterFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		finish, inner := make(chan struct{}), make(chan error)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			go func() {
				inner <- l.Do(ctx, "n", "k", func(context.Context) error { <-finish; return nil })
			}()
			synctest.Wait()
			return nil
		})) // the outer Do has returned
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		close(finish)
		require.NoError(t, <-inner)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestContextThatOutlivedItsHoldAcquiresLikeAnyOther(t *testing.T) {
	for _, used := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			var late, derived context.Context
			require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
				late = ctx
				if used { // as a database driver does
					<-time.After(time.Millisecond)
					var stop func()
					derived, stop = context.WithCancel(ctx)
					_ = stop
					_ = ctx.Done()
				} else {
					derived = context.WithValue(ctx, t, t)
				}
				return nil
			}))
			other := lockerOn(t, b)
			release := hold(t, other, "n", "k")
			for _, ctx := range []context.Context{late, derived} {
				require.NoError(t, ctx.Err())
				require.ErrorIs(t, l.Do(ctx, "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			}
			release()
			for _, ctx := range []context.Context{late, derived} {
				require.NoError(t, l.Do(ctx, "n", "k", nothing))
			}
			cancel()
			for _, ctx := range []context.Context{late, derived} {
				<-ctx.Done()
				require.ErrorIs(t, l.Do(ctx, "n", "k", never(t)), context.Canceled)
			}
		})
	}
}

func TestSharedInsideExclusiveIsFineTheOtherWayRoundIsErrUpgrade(t *testing.T) {
	l, _ := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		return l.Do(ctx, "n", "k", func(ctx context.Context) error {
			return l.Do(ctx, "n", "k", nothing) // of the same exclusive hold
		}, wllock.Shared())
	}))
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		refusal(t, l.Do(ctx, "n", "k", never(t)), wllock.ErrUpgrade, wllock.TierLocal)
		return l.Do(ctx, "n", "k", nothing, wllock.Shared())
	}, wllock.Shared()))
}

func TestNestedGuardsInsideWorkWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		closed := make(chan error, 1)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			go func() { closed <- l.Close(context.Background()) }()
			synctest.Wait()
			require.ErrorIs(t, l.Do(ctx, "n", "other", never(t)), wllock.ErrClosed)
			return l.Do(ctx, "n", "k", nothing)
		}))
		require.NoError(t, <-closed)
	})
}

// TestWaitForFellowSharersIsLocal: the wait of a sharer that came too late for a running lease, refused or admitted.
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

// panics is a backend that panics the first few times.
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
