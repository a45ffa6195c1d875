package wllocktest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that does not fail, but records that it should have.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// end runs the clean-ups as the end of a test does, last first.
func (r *recorder) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func nothing(context.Context) error { return nil }

func TestLockerIsClosedWithTheTest(t *testing.T) {
	r := &recorder{TB: t}
	locker := wllocktest.New(r)
	require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
	r.end()
	require.Empty(t, r.errors)
	require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrClosed)
}

func TestForgottenLockFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		locker := wllocktest.New(r)
		lock, err := locker.Acquire(t.Context(), "product", "1")
		require.NoError(t, err)
		r.end()
		require.Len(t, r.errors, 1)
		require.Contains(t, r.errors[0], "at the end of the test locks (1 of product) are still held")
		_ = lock.Release(t.Context())
	})
}

func TestFunctionMayEndWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		locker := wllocktest.New(r)
		ctx, cancel := context.WithCancel(t.Context())
		go locker.Do(ctx, "product", "1", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return ctx.Err()
		})
		synctest.Wait()
		cancel()
		r.end()
		require.Empty(t, r.errors)
	})
}

func TestHoldIsInTheWay(t *testing.T) {
	locker := wllocktest.New(t, wllock.WithThreshold(0))
	release := wllocktest.Hold(t, locker, "product", "1")
	require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrQueueFull)
	release()
	require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
	release() // again: nothing
	wllocktest.Hold(t, locker, "product", "1")
}

func TestOtherProcessHolds(t *testing.T) {
	locker, faults := wllocktest.NewWithFaults(t)
	release := wllocktest.Hold(t, faults.Process(), "product", "1")
	require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing, wllock.NoWait()), wllock.ErrHeld)
	release()
	require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
}

func TestLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t)
		other := faults.Process()
		err := locker.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			time.Sleep(time.Millisecond)
			faults.Lose("product", "1")
			require.NoError(t, other.Do(t.Context(), "product", "1", nothing), "it is free")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
			return nil
		})
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
	})
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t)
		faults.Partition()
		require.ErrorIs(t, locker.Ping(t.Context()), wllock.ErrUnavailable)
		require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrUnavailable)
		faults.Heal()
		require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))

		err := locker.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			faults.Partition()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
	})
}

func TestPartitionEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		locker, faults := wllocktest.NewWithFaults(r, wllock.WithLeaseTTL(time.Hour))
		require.NoError(t, locker.Do(t.Context(), "product", "1", func(context.Context) error {
			faults.Partition()
			return nil
		}))
		r.end() // which could not give the lease back
		require.Empty(t, r.errors)
	})
}
