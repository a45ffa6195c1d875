package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// Eight processes of sixteen callers: nobody is beside a holder, each fence is above the one before, and all get the same share. In
// tenures they get far more of it.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	zktest.Shared(t)
	tenures := hotKey(t)
	turns := hotKey(t, wllock.WithMaxHandoffs(0))
	t.Logf("%d turns in tenures, %d over ZooKeeper", tenures, turns)
	if !race.Enabled { // which slows the turns within a process, and not the server
		require.GreaterOrEqual(t, tenures, 20*turns)
	}
}

func hotKey(t *testing.T, opts ...wllock.Option) (total int64) {
	t.Helper()
	const lockers, callers = 8, 16
	root := newRoot()
	var last uint64 // guarded by the lock under test, as inside is
	var inside int
	turns := make([]atomic.Int64, lockers)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range lockers {
		b := open(t, zktest.Shared(t).Addr, root)
		l, err := wllock.New("shop", b, append(opts, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(10*time.Second))...)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close(context.Background())) }()
		for range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := l.Do(ctx, "product", "1", func(ctx context.Context) error {
						held, _ := wllock.HeldFrom(ctx)
						inside++
						if inside != 1 || held.Fence() <= last {
							t.Errorf("%d inside, fence %d after %d", inside, held.Fence(), last)
						}
						last = held.Fence()
						turns[i].Add(1)
						inside--
						return nil
					})
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range turns {
		total += turns[i].Load()
	}
	t.Logf("Jain %.3f", jain(turns))
	require.GreaterOrEqual(t, jain(turns), 0.9)
	return total
}

// While the server is away callers are refused at once; when it is back locks are acquired again, by the same Locker.
func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	zktest.Shared(t)
	private := zktest.Start(t)
	l, err := wllock.New("shop", open(t, private.Addr, newRoot()), wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl))
	require.NoError(t, err)
	do := func() error {
		return l.Do(t.Context(), "product", "1", func(context.Context) error { return nil }, wllock.WithWait(time.Second))
	}
	works := func() bool { return do() == nil }
	require.Eventually(t, works, patience, time.Millisecond)
	private.Kill()
	require.Eventually(t, func() bool {
		start := time.Now()
		return errors.Is(do(), wllock.ErrUnavailable) && time.Since(start) < 10*time.Millisecond
	}, patience, time.Millisecond)
	private.Restart()
	require.Eventually(t, works, patience, time.Millisecond)
	require.NoError(t, l.Close(context.Background()))
}

// jain is Jain's index of fairness: 1 if all have the same.
func jain(counts []atomic.Int64) float64 {
	var sum, squares float64
	for i := range counts {
		n := float64(counts[i].Load())
		sum += n
		squares += n * n
	}
	return sum * sum / (float64(len(counts)) * squares)
}
