package wllock_test

import (
	"context"
	"fmt"
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
		held, errs := make(chan error, 1), make(chan error, 3)
		go func() {
			held <- l.Do(context.Background(), "n", "near", func(ctx context.Context) error {
				time.Sleep(3 * ttl)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		for _, key := range []string{"near", "far", "far"} { // in the local queue; at the backend; behind that one
			go func() { errs <- l.Do(context.Background(), "n", key, never(t)) }()
			synctest.Wait()
		}
		begin := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 3*ttl, time.Since(begin))
		require.NoError(t, <-held)
		for range 3 {
			require.ErrorIs(t, <-errs, wllock.ErrClosed)
		}
		release() // the closed Locker has nothing left in the backend's queue
		require.NoError(t, other.Do(t.Context(), "n", "far", nothing, wllock.NoWait()))
		require.NoError(t, other.Do(t.Context(), "n", "near", nothing, wllock.NoWait()))
		require.NoError(t, l.Close(t.Context()), "again")
	})
}

func TestCloseWhoseContextEndsFirstEndsTheHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl))
		require.NoError(t, err)
		held := make(chan error, 1)
		go func() {
			held <- l.Do(context.Background(), "n", "k", func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, <-held, wllock.ErrClosed)
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestCloseAbandonsTheLeaseOfAHolderThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl))
		require.NoError(t, err)
		stay, held := make(chan struct{}), make(chan error)
		go func() {
			held <- l.Do(context.Background(), "n", "k", func(context.Context) error { <-stay; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Close(ctx), context.Canceled)
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

func TestLingerServesTheNextAndYieldsToAnotherInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithLinger(time.Hour))
		other := lockerOn(t, b)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		time.Sleep(10 * ttl)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			require.True(t, h.Handoff())
			return nil
		}))
		begin := time.Now()
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing))
		require.Zero(t, time.Since(begin))
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
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
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
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
