package sale

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// TestTheLockInTheDatabaseOfTheStock has the databases of servers.
func TestASaleOverEachLockService(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"etcd":      func(t *testing.T) string { return "etcd://" + etcdtest.Start(t).Addr },
		"ZooKeeper": func(t *testing.T) string { return "zk://" + zktest.Start(t).Addr + "/sale" },
		"SQLite":    func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "locks.db") },
	} {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -buyers 20 -stock 10 -ramp 20ms -backend "+url(t))...)
			require.Equal(t, StatusOK, status, stderr)
		})
	}
}

// The lock in the same database as the stock, so that a database is all it takes. Not on SQLite, where the lock and the orders
// would wait for each other: a file has one writer at a time.
func TestTheLockInTheDatabaseOfTheStock(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return dbtest.SharedPostgres(t).URL() },
		"MariaDB":    func(t *testing.T) string { return dbtest.SharedMariaDB(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			db := url(t)
			got := modeSale(t, "-procs 2 -mode lock -buyers 5 -stock 10 -threshold 100 -pool 2 -db "+db+" -backend "+db)
			require.Len(t, got, 1)
			assert.Equal(t, 10, got[0].Sold)
		})
	}
}
