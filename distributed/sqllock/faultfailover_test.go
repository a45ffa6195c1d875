package sqllock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// What the primary has committed and the standby has not received is forgotten by a failover: also who has a lock. Two
// instances then hold it, until the old one finds out. Its fence is older, so a store that checks fences refuses it, also one that
// has failed over with the locks.
func TestFailoverToAStandbyThatLacksTheLock(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	primary := migrated(t, database{"postgres", sqllock.PostgreSQL, dbtest.Postgres(t, dbtest.NoSync()), ""})
	key := newName("k")
	db := newStock(t, primary, key)
	warm := primary.backend(t, nil)
	release(t, acquired(t, warm, request(key))) // the row is on both
	standby := primary.server.Standby()
	standby.CaughtUp(primary.server)

	// Both instances reach the primary of the day by one address, as behind a load balancer.
	front := testproc.NewProxy(t, primary.server.Addr)
	through := func() *sqllock.Backend {
		return backendOn(t, poolOf(t, connectorOf(primary.server.URLAt(front.Addr))), sqllock.PostgreSQL)
	}
	near, far := through(), through()
	standby.Link.Stall(true)
	old := acquired(t, near, request(key, safely))
	claimed(t, old)
	first := fence(t, old)
	require.Equal(t, int64(1), fencedWrite(t.Context(), db, key, first), "while it holds the lock")

	standby.Promote()
	front.Forward(standby.Addr)
	start := time.Now()
	l := acquired(t, far, request(key))
	within(t, "a grant after the failover", time.Since(start), 0)
	second := fence(t, l)
	require.Greater(t, second, first, "fences grow, though the standby has not seen the last ones")

	promoted := poolOf(t, connectorOf(standby.URL()))
	require.Equal(t, int64(1), fencedWrite(t.Context(), promoted, key, second))
	require.Zero(t, fencedWrite(t.Context(), promoted, key, first), "the old holder")
	lost(t, old)
	within(t, "the old holder's report of the loss", time.Since(start), distributed.RenewInterval(safeTTL))
	release(t, l)
}

// With a synchronous standby nothing that was acknowledged is forgotten: the place in the queue, and the lock, outlive the failover.
func TestFailoverToAStandbyThatHasTheLock(t *testing.T) {
	testscope.Long(t, "kills a server")
	t.Parallel()
	primary := migrated(t, database{"postgres", sqllock.PostgreSQL, dbtest.Postgres(t, dbtest.NoSync()), ""})
	standby := primary.server.Standby()
	primary.server.Exec("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	primary.server.Exec("SELECT pg_reload_conf()")
	front, key := testproc.NewProxy(t, primary.server.Addr), newName("k")
	through := func() *sqllock.Backend {
		return backendOn(t, poolOf(t, connectorOf(primary.server.URLAt(front.Addr))), sqllock.PostgreSQL)
	}
	near, far := through(), through()
	l := acquired(t, near, request(key, safely))
	first := fence(t, l)
	p := place(t, far, request(key, safely))
	primary.server.Kill()
	standby.Promote()
	standby.Exec("ALTER SYSTEM SET synchronous_standby_names = ''")
	standby.Exec("SELECT pg_reload_conf()")
	front.Forward(standby.Addr)
	_, _, err := far.Enter(t.Context(), request(key, safely, func(r *distributed.Request) { r.NoWait = true }))
	require.ErrorIs(t, err, distributed.ErrHeld)
	release(t, l)
	next := granted(t, p)
	require.NotNil(t, next)
	require.Greater(t, fence(t, next), first)
	release(t, next)
}
