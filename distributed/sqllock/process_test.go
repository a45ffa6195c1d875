package sqllock

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	each(t, func(t *testing.T, d *database) {
		testlocker.Processes{URL: d.url, Open: openURL, TTL: ttl, Notice: slack}.Run(t)
	})
}

func TestFleet(t *testing.T) {
	testscope.Long(t, "kills and stops processes")
	each(t, func(t *testing.T, d *database) {
		testlocker.Fleet{URL: func(int) string { return d.url }, TTL: ttl, Lanes: 3}.Run(t)
	})
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			testlocker.HotKey(t, func() distributed.Backend { return d.backend(t) })
		})
	}
}

func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	onOwnServers(t, func(t *testing.T, d *database) { testlocker.Outage(t, d.backend(t), d.server.Server) })
}

// Beside what StormOver breaks, two statements in 150 are lost before or after the database has carried them out, and one is rolled back
// as the victim of a deadlock.
func TestFaultsInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	storm := func(t *testing.T, d *database) {
		rnd := testseed.Rand(t)
		open := func(addr string) distributed.Backend {
			over := d.over(d.connector)
			if d.server != nil {
				over.connector = connectorOf(d.server.URLAt(addr))
			}
			over.wire.breaksAtRandom(rand.New(rand.NewPCG(rnd.Uint64(), 0)))
			return over.backend(t)
		}
		var servers []*testproc.Server
		if d.server != nil {
			servers = append(servers, d.server.Server)
		}
		testlocker.StormOver(t, 5, ttl, servers, open).Run(t)
		free(t, acquired(t, d.backend(t), testlocker.StormKey))
	}
	onOwnServers(t, storm)
	t.Run("sqlite", func(t *testing.T) { storm(t, newSQLite(t)) })
}

// Far more processes than the server has connections wait for a lock, each with a pool that keeps none, and all get it in order.
// Those that find no connection come again.
func TestFleetLargerThanTheServer(t *testing.T) {
	testscope.Long(t, "a storm of callers")
	t.Parallel()
	fleet, connections := testscope.Scale(40, 200), testscope.Scale(8, 20)
	d := newServer(t, dbtest.Postgres(t, dbtest.NoSync(), dbtest.Set("max_connections", fmt.Sprint(connections))))
	open := func() *Backend {
		db := sql.OpenDB(d.connector)
		db.SetMaxIdleConns(-1) // a connection that is kept is one that others lack
		return backendOn(t, db, PostgreSQL, WithOwnedDB(), WithParallel(1))
	}
	held := enter(t, open(), "key")
	places := make([]distributed.Place, fleet)
	for i := range places {
		places[i] = queue(t, open(), "key", by(fmt.Sprint(i)))
	}
	for _, p := range places {
		last := fenceOf(t, held)
		free(t, held)
		held = awaited(t, p)
		require.Greater(t, fenceOf(t, held), last)
	}
	free(t, held)
}
