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

// recorder is a test that does not fail, but records that it should have. Without a TB it serves an example.
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

func (r *recorder) Context() context.Context {
	if r.TB == nil {
		return context.Background()
	}
	return r.TB.Context()
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

func TestForgottenLocksFailTheTestAndAreNamed(t *testing.T) {
	for want, keys := range map[string][]string{
		`at the end of the test "test:product:1" is still held`: {"1"},
		`"test:product:1", "test:product:2" are still held`:     {"2", "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{TB: t}
			locker := wllocktest.New(r)
			for _, key := range keys {
				lock, err := locker.Acquire(t.Context(), "product", key)
				require.NoError(t, err)
				defer lock.Release(t.Context())
			}
			r.end()
			require.Len(t, r.errors, 1)
			require.Contains(t, r.errors[0], want)
		})
	}
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

func TestHoldLastsUntilItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := wllocktest.New(t)
		release := wllocktest.Hold(t, locker, "product", "1")
		require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing, wllock.WithWait(time.Hour)), wllock.ErrWaitTimeout)
		time.AfterFunc(time.Hour, release)
		require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
	})
}

func TestOtherProcessHolds(t *testing.T) {
	locker, faults := wllocktest.NewWithFaults(t)
	release := wllocktest.Hold(t, faults.Process(), "product", "1")
	require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing, wllock.NoWait()), wllock.ErrHeld)
	release()
	require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
}

func TestAnotherProcessAdopts(t *testing.T) {
	locker, faults := wllocktest.NewWithFaults(t)
	lock, err := locker.Acquire(t.Context(), "product", "1")
	require.NoError(t, err)
	token, err := lock.Detach(t.Context(), time.Minute)
	require.NoError(t, err)
	found, err := locker.Inspect(t.Context(), "product", "1")
	require.NoError(t, err)
	require.True(t, found.Holders[0].Detached())
	lock, err = faults.Process().Adopt(t.Context(), token)
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
}

// A test that loses a lock which it misspells, or which is not acquired yet, would test nothing.
func TestLoseOfALockWithoutAHolder(t *testing.T) {
	r := &recorder{TB: t}
	l, faults := wllocktest.NewWithFaults(r)
	defer r.end()
	faults.Lose("product", "1")
	require.Len(t, r.errors, 1)
	defer wllocktest.Hold(t, l, "product", "1")()
	faults.Lose("product", "1")
	require.Len(t, r.errors, 1)
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

func TestHang(t *testing.T) {
	const ttl = time.Second
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(ttl))
		begun := time.Now()
		passed := func() time.Duration {
			d := time.Since(begun)
			begun = time.Now()
			return d
		}
		faults.Hang()
		err := locker.Do(t.Context(), "product", "1", nothing, wllock.WithWait(100*time.Millisecond))
		require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.Equal(t, 100*time.Millisecond, passed())

		require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrUnavailable)
		require.Equal(t, ttl/2, passed())

		time.AfterFunc(time.Millisecond, faults.Heal)
		require.NoError(t, locker.Do(t.Context(), "product", "1", nothing), "the answer came late")
		require.Equal(t, time.Millisecond, passed())

		faults.Hang()
		time.AfterFunc(time.Millisecond, faults.Partition)
		require.ErrorIs(t, locker.Ping(t.Context()), wllock.ErrUnavailable)
		require.Equal(t, time.Millisecond, passed(), "a server that has ended refuses at once")
		faults.Heal()
		require.NoError(t, locker.Ping(t.Context()))

		err = locker.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			faults.Hang()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
	})
}

// A hand-over to another process asks the backend with the lease that it gives up.
func TestHangDuringHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t, wllock.WithMaxHandoffs(0))
		held, waits := make(chan struct{}), make(chan error, 1)
		go locker.Do(t.Context(), "product", "1", func(context.Context) error {
			<-held
			faults.Hang()
			return nil
		})
		synctest.Wait()
		go func() { waits <- faults.Process().Do(t.Context(), "product", "1", nothing) }()
		synctest.Wait()
		go func() { waits <- locker.Do(t.Context(), "product", "1", nothing) }()
		synctest.Wait()
		close(held)
		time.Sleep(time.Millisecond)
		faults.Heal()
		require.NoError(t, <-waits)
		require.NoError(t, <-waits)
	})
}

func TestFaultsEndWithTheTest(t *testing.T) {
	for name, fault := range map[string]func(*wllocktest.Faults){"partition": (*wllocktest.Faults).Partition, "hang": (*wllocktest.Faults).Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				locker, faults := wllocktest.NewWithFaults(r, wllock.WithLeaseTTL(time.Hour))
				require.NoError(t, locker.Do(t.Context(), "product", "1", func(context.Context) error {
					fault(faults)
					return nil
				}))
				go locker.Do(t.Context(), "product", "1", nothing)
				synctest.Wait()
				r.end() // which could not release the lease
				require.Empty(t, r.errors)
			})
		})
	}
}

// Of a name with permits, Hold has one: n of them are in the way of the code under test.
func TestHoldHasOnePermit(t *testing.T) {
	locker := wllocktest.New(t, wllock.WithName("partner", wllock.Permits(2)))
	wllocktest.Hold(t, locker, "partner", "acme")
	require.NoError(t, locker.Do(t.Context(), "partner", "acme", nothing, wllock.NoWait()))
	wllocktest.Hold(t, locker, "partner", "acme")
	require.ErrorIs(t, locker.Do(t.Context(), "partner", "acme", nothing, wllock.NoWait()), wllock.ErrHeld)
}
