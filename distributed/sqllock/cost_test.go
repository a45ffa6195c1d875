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
	"github.com/wllock/wllock/internal/testscope"
)

// each runs a test on each database.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func prevIs(l distributed.Lease) func(*distributed.Request) {
	return func(r *distributed.Request) { r.Prev = l }
}

// A lone caller pays one statement to lock and one to unlock, and one for both if it locks again.
func TestLoneCaller(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		require.NoError(t, enter(t, b, "first").Release(t.Context())) // makes the connection
		before := d.wire.statements.Load()
		const rounds = 20
		for i := range rounds {
			require.NoError(t, enter(t, b, fmt.Sprint("key", i%2)).Release(t.Context()))
		}
		require.EqualValues(t, 2*rounds, d.wire.statements.Load()-before)

		before = d.wire.statements.Load()
		l := enter(t, b, "loop")
		for range rounds {
			l = enter(t, b, "loop", prevIs(l))
		}
		require.EqualValues(t, 1+rounds, d.wire.statements.Load()-before)

		before = d.wire.statements.Load()
		_, _, err := b.Enter(t.Context(), distributed.Request{Key: "loop", Instance: "other", TTL: time.Minute, NoWait: true})
		require.ErrorIs(t, err, distributed.ErrHeld)
		require.LessOrEqual(t, d.wire.statements.Load()-before, int64(2))
		permitCosts(t, d, b)
	})
}

// A lone permit is acquired in one statement, and one that is refused costs a look or two.
func permitCosts(t *testing.T, d *database, b *Backend) {
	t.Helper()
	permit := func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, 2 }
	release := func(l distributed.Lease) { require.NoError(t, l.Release(t.Context())) }
	fewest := func(what func()) int64 { // the looks of holders come in between
		least := int64(math.MaxInt64)
		for range 20 {
			before := d.wire.statements.Load()
			what()
			least = min(least, d.wire.statements.Load()-before)
		}
		return least
	}
	require.EqualValues(t, 2, fewest(func() { release(enter(t, b, "permit", permit)) }))
	l, another := enter(t, b, "permit", permit), enter(t, b, "permit", permit)
	for _, from := range []*Backend{b, d.backend(t)} {
		require.LessOrEqual(t, fewest(func() {
			_, _, err := from.Enter(t.Context(), distributed.Request{
				Key: "permit", Instance: "other", TTL: time.Minute, NoWait: true, Mode: distributed.Shared, Limit: 2,
			})
			require.ErrorIs(t, err, distributed.ErrHeld)
		}), int64(2))
	}
	release(another)
	release(l)
}

// Thousands of leases of one process are renewed on time by a few statements, however they came about.
func TestManyLeases(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	each(t, func(t *testing.T, d *database) {
		leases, ttl := testscope.Scale(2_000, 10_000), testscope.Scale(20*time.Second, 5*time.Second)
		settle := testscope.Scale(0, 5*time.Second)
		b := d.backend(t, WithParallel(4))
		all := make([]distributed.Lease, leases)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := i; n < leases; n += 4 {
					all[n] = enter(t, b, fmt.Sprint("key", n), func(r *distributed.Request) { r.TTL = ttl })
				}
			})
		}
		wg.Wait()
		time.Sleep(settle) // new leases look more often whether somebody waits
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
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		holder := enter(t, b, "key")
		var places []distributed.Place
		for i := range 200 {
			_, p, err := b.Enter(t.Context(), distributed.Request{Key: "key", Instance: fmt.Sprint(i), TTL: 10 * time.Second})
			require.NoError(t, err)
			places = append(places, p)
		}
		most := 0
		for range 100 {
			most = max(most, b.db.Stats().InUse)
			time.Sleep(5 * time.Millisecond)
		}
		require.LessOrEqual(t, most, BackgroundConnections)
		require.NoError(t, holder.Release(t.Context()))
		for _, p := range places[:20] {
			l := <-p.Granted()
			require.NotNil(t, l)
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// A caller that keeps all connections of the pool and asks for a lock is refused in time, and nothing hangs.
func TestExhaustedPool(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		b.db.SetMaxOpenConns(1)
		l := enter(t, b, "outer")
		conn, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		start := time.Now()
		_, _, err = b.Enter(t.Context(), distributed.Request{Key: "inner", Instance: "instance", TTL: 2 * time.Second})
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		testscope.InTime(t, time.Since(start), 2*time.Second, "the refusal")
		require.NoError(t, conn.Close())
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, enter(t, b, "inner").Release(t.Context()))
	})
}
