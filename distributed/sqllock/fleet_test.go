package sqllock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testscope"
)

// Far more processes than the server has connections wait for a lock, each with a pool that keeps none, and all get it in order.
// Those that find no connection come again.
func TestFleetLargerThanTheServer(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	t.Parallel()
	fleet, connections := testscope.Scale(40, 200), testscope.Scale(8, 20)
	server := dbtest.Postgres(t, dbtest.NoSync(), dbtest.Set("max_connections", fmt.Sprint(connections)))
	config, err := pgx.ParseConfig(server.URL())
	require.NoError(t, err)
	open := func() *Backend {
		db := stdlib.OpenDB(*config)
		db.SetMaxIdleConns(-1) // a connection that is kept is one that others lack
		b, err := New(db, PostgreSQL, WithOwnedDB(), WithParallel(1))
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	first := open()
	require.NoError(t, Migrate(t.Context(), first.db, PostgreSQL))
	request := func(i int) distributed.Request {
		return distributed.Request{Key: "key", Instance: fmt.Sprint(i), TTL: time.Minute}
	}
	held, _, err := first.Enter(t.Context(), request(0))
	require.NoError(t, err)
	start := time.Now()
	places := make([]distributed.Place, fleet)
	for i := range places { // one after the other, so that their order is known
		_, places[i], err = open().Enter(t.Context(), request(1+i))
		require.NoError(t, err, i)
	}
	t.Logf("%d wait after %v", fleet, time.Since(start))
	start = time.Now()
	require.NoError(t, held.Release(t.Context()))
	fences := make([]uint64, fleet)
	group, ctx := errgroup.WithContext(t.Context())
	for i, p := range places {
		group.Go(func() error { return passOn(ctx, p, &fences[i]) })
	}
	require.NoError(t, group.Wait())
	t.Logf("%d hand-overs in %v", fleet, time.Since(start))
	require.IsIncreasing(t, fences)
}

// passOn waits for the lock, notes its fence and releases it.
func passOn(ctx context.Context, p distributed.Place, fence *uint64) error {
	select {
	case l := <-p.Granted():
		if l == nil {
			return fmt.Errorf("the place was lost")
		}
		*fence, _ = l.NextFence()
		return l.Release(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
