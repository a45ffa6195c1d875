package sqllock

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// A lone caller pays one statement to lock and one to unlock, and one for both if it locks again; for a permit, too. A refusal costs a look
// or two.
func TestLoneCaller(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		free(t, enter(t, b, "first"))       // makes the connection
		fewest := func(what func()) int64 { // the looks of holders come in between
			least := int64(math.MaxInt64)
			for range 20 {
				before := d.wire.statements.Load()
				what()
				least = min(least, d.wire.statements.Load()-before)
			}
			return least
		}
		for key, as := range map[string]testlocker.Change{"lock": writing, "permit": permits(2)} {
			require.EqualValues(t, 2, fewest(func() { free(t, enter(t, b, key, as)) }), key)
			l := enter(t, b, key, as)
			require.EqualValues(t, 1, fewest(func() { l = enter(t, b, key, as, prevIs(l)) }), key)
			if key == "permit" {
				enter(t, b, key, as)
			}
			for _, from := range []*Backend{b, d.backend(t)} {
				require.LessOrEqual(t, fewest(func() {
					_, _, err := try(t.Context(), from, key, as, noWait)
					require.ErrorIs(t, err, distributed.ErrHeld)
				}), int64(2), key)
			}
		}
	})
}

// Thousands of leases of one process are renewed on time by a few statements, however they came about.
func TestManyLeases(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	each(t, func(t *testing.T, d *database) {
		leases, ttl := testscope.Scale(2_000, 10_000), testscope.Scale(20*time.Second, 5*time.Second)
		settle := testscope.Scale(2*time.Second, 5*time.Second)
		b := d.backend(t, WithParallel(4))
		all := make([]distributed.Lease, leases)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := i; n < leases; n += 4 {
					all[n] = enter(t, b, fmt.Sprint("key", n), lasting(ttl))
				}
			})
		}
		wg.Wait()
		time.Sleep(settle) // new leases look more often whether somebody waits: for the first second
		watched := max(ttl/2, 2*settle)
		before, start := d.wire.statements.Load(), time.Now()
		time.Sleep(watched)
		perSecond := float64(d.wire.statements.Load()-before) / time.Since(start).Seconds()
		t.Logf("%.1f statements/s", perSecond)
		require.LessOrEqual(t, perSecond, 20.)
		for _, l := range all {
			require.True(t, l.Healthy())
			require.Greater(t, distributed.Left(time.Now(), l.Until()), ttl/3)
		}
		var released sync.WaitGroup
		before = d.wire.statements.Load()
		for _, l := range all {
			released.Go(func() { require.NoError(t, l.Release(context.Background())) })
		}
		released.Wait()
		require.Less(t, d.wire.statements.Load()-before, int64(leases/5), "releases share statements")
	})
}

// Waiting and holding need no connection.
func TestIdleHoldsNoConnection(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		holder := enter(t, b, "key")
		var places []distributed.Place
		for i := range 200 {
			places = append(places, queue(t, b, "key", by(fmt.Sprint(i)), lasting(10*time.Second)))
		}
		most := 0
		for range 100 {
			most = max(most, b.db.Stats().InUse)
			time.Sleep(5 * time.Millisecond)
		}
		require.LessOrEqual(t, most, BackgroundConnections)
		free(t, holder)
		for _, p := range places[:20] {
			free(t, awaited(t, p))
		}
	})
}

// A caller that keeps all connections of the pool and asks for a lock is refused in time, and nothing hangs.
func TestExhaustedPool(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		b.db.SetMaxOpenConns(1)
		l := enter(t, b, "outer")
		conn, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		start := time.Now()
		_, _, err = try(t.Context(), b, "inner", lasting(2*time.Second))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		testscope.InTime(t, time.Since(start), 2*time.Second, "the refusal")
		require.NoError(t, conn.Close())
		free(t, l)
		free(t, enter(t, b, "inner"))
	})
}
