package sqllock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
)

// While the connection of a Notifier is gone, hand-overs are found by polling; then it is made anew.
func TestConnectionOfTheNotifierIsKilled(t *testing.T) {
	t.Parallel()
	d := migrated(t, database{"postgres", sqllock.PostgreSQL, dbtest.Postgres(t, dbtest.NoSync()), ""})
	open := func() *sqllock.Backend {
		b, err := postgres.Open(d.server.URL())
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	near, far, key := open(), open(), newName("k")
	listening := func() string {
		return d.server.Exec("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()")
	}
	require.Eventually(t, func() bool { return listening() == "2" }, forever, 10*time.Millisecond)
	for range 3 {
		l := acquired(t, near, request(key, lasting(6*faultTTL)))
		p := place(t, far, request(key, lasting(6*faultTTL)))
		d.server.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()")
		release(t, l)
		start := time.Now()
		release(t, granted(t, p))
		within(t, "a hand-over without its notification", time.Since(start), distributed.HeartbeatInterval(6*faultTTL))
	}
	require.Eventually(t, func() bool { return listening() == "2" }, forever, 10*time.Millisecond)
}
