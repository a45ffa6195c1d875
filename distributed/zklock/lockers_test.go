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
)

// Eight processes of sixteen callers: nobody is beside a holder, each fence is above the one before, and all get the same share. In
// tenures they get far more of it.
func TestHotKey(t *testing.T) {
	need(t)
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
		b := open(t, server.Addr, root)
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
