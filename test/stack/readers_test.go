package stack_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// bothTTL is so long that a busy machine loses no lease, and that what only a renewal repairs, after a third of it, is late.
const bothTTL = 6 * time.Second

// overBoth runs a test with instances that share a backend in memory, and with instances that have a backend each on one
// Redis, as processes have.
func overBoth(t *testing.T, test func(t *testing.T, instance func(...wllock.Option) *wllock.Locker)) {
	long := []wllock.Option{wllock.WithLeaseTTL(bothTTL)}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		b := memlock.New()
		test(t, func(opts ...wllock.Option) *wllock.Locker { return lockerOn(t, b, slices.Concat(long, opts)...) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		addr := redistest.Start(t).Addr
		test(t, func(opts ...wllock.Option) *wllock.Locker {
			return lockerOn(t, redisOn(t, addr), slices.Concat(long, opts)...)
		})
	})
}

func redisOn(t testing.TB, addr string) distributed.Backend {
	t.Helper()
	b, err := redislock.Open("redis://" + addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// inside starts a call that stays inside until the test ends it.
func inside(t *testing.T, l *wllock.Locker, opts ...wllock.CallOption) (in <-chan struct{}, end func()) {
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		left <- l.Do(context.Background(), "n", "k", func(context.Context) error {
			close(entered)
			<-leave
			return nil
		}, opts...)
	}()
	end = sync.OnceFunc(func() {
		close(leave)
		require.NoError(t, <-left)
	})
	t.Cleanup(end)
	return entered, end
}

// A reader that took over from a writer of its process works under the writer's exclusive lease.
func TestReaderAfterAWriterDoesNotShutOutOtherReaders(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	for name, opts := range map[string][]wllock.Option{
		"fail closed": nil, "local only": {wllock.WithOutage(wllock.LocalOnly)}, "no hand-offs": {wllock.WithMaxHandoffs(0)},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
				a, b, c := instance(opts...), instance(opts...), instance(opts...)
				release := hold(t, a, "n", "k")
				in, end := inside(t, a, wllock.Shared())
				time.Sleep(20 * time.Millisecond)
				release()
				<-in // only a reader is inside now
				start, stalled := time.Now(), stalls(t)
				inB, endB := inside(t, b, wllock.Shared(), wllock.WithWait(3*time.Second))
				<-inB
				testscope.InTime(t, time.Since(start), bothTTL/6+4*quantile(stalled(), 1), "entering")
				hold(t, c, "n", "k", wllock.Shared(), wllock.NoWait())()
				hold(t, a, "n", "k", wllock.Shared(), wllock.WithWait(bothTTL))()
				require.ErrorIs(t, b.Do(t.Context(), "n", "k", never(t), wllock.WithWait(50*time.Millisecond)), wllock.ErrWaitTimeout)
				end()
				require.ErrorIs(t, a.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
				endB()
				hold(t, a, "n", "k", wllock.WithWait(3*time.Second))()
			})
		})
	}
}

func TestWriterThatGaveUpDoesNotKeepReadersOut(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
		a, b := instance(), instance()
		defer hold(t, a, "n", "k", wllock.Shared())() // a reader that stays
		_, err := b.Acquire(t.Context(), "n", "k", wllock.WithWait(250*time.Millisecond))
		require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		start, stalled := time.Now(), stalls(t)
		hold(t, a, "n", "k", wllock.Shared(), wllock.WithWait(3*time.Second))()
		testscope.InTime(t, time.Since(start), bothTTL/6+4*quantile(stalled(), 1), "entering")
	})
}

// It asks while the writer still waits, so it is let in when the writer gives up.
func TestReaderBehindAWriterEntersWhenThatGivesUp(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
		a, b := instance(), instance()
		defer hold(t, a, "n", "k", wllock.Shared())()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, "n", "k")
			gone <- err
		}()
		other := instance()
		require.Eventually(t, func() bool { // the writer is queued
			return errors.Is(other.Do(t.Context(), "n", "k", nothing, wllock.Shared(), wllock.NoWait()), wllock.ErrHeld)
		}, 3*time.Second, 10*time.Millisecond)
		time.Sleep(200 * time.Millisecond) // MaxTenure
		in := make(chan error)
		go func() {
			in <- a.Do(t.Context(), "n", "k", nothing, wllock.Shared(), wllock.WithWait(3*time.Second))
		}()
		select {
		case <-in:
			t.Fatal("a reader has passed a queued writer, after MaxTenure")
		case <-time.After(100 * time.Millisecond):
		}
		start, stalled := time.Now(), stalls(t)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.NoError(t, <-in)
		testscope.InTime(t, time.Since(start), bothTTL/6+4*quantile(stalled(), 1), "entering")
	})
}

func TestNoWaitAfterATimedOutWaitIsNotRefusedByItsOwnPlace(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, instance func(...wllock.Option) *wllock.Locker) {
		a, b := instance(), instance()
		for range 100 {
			release := hold(t, b, "n", "k")
			_, err := a.Acquire(t.Context(), "n", "k", wllock.WithWait(2*time.Millisecond))
			require.ErrorIs(t, err, wllock.ErrWaitTimeout)
			release()
			hold(t, a, "n", "k", wllock.NoWait())()
		}
	})
}
