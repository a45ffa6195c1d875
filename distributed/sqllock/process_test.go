package sqllock

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	each(t, func(t *testing.T, d *database) {
		testlocker.Processes{URL: d.url, Open: openURL, TTL: ttl, Notice: slack}.Run(t)
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
