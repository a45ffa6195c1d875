package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// opener opens Backends as processes of their own do, which push hand-overs to each other.
func opener(t *testing.T, s *dbtest.Server) func() distributed.Backend {
	t.Helper()
	require.NoError(t, postgres.Migrate(t.Context(), s.URL()))
	return func() distributed.Backend {
		b, err := postgres.Open(s.URL())
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
}

// While the connection of a Notifier is gone, hand-overs are found by polling; then it is made anew.
func TestConnectionOfTheNotifierIsKilled(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	s := dbtest.SharedPostgres(t)
	open := opener(t, s)
	near := testlocker.Asker{T: t, B: open(), Key: "k", TTL: ttl}
	far := testlocker.Asker{T: t, B: open(), Key: "k", TTL: ttl}
	const listeners = " FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
	twoListen := func() bool { return s.Exec("SELECT count(*)"+listeners) == "2" }
	require.Eventually(t, twoListen, testlocker.Patience, 10*time.Millisecond)
	for range 3 {
		l, p := near.Lease("a"), far.Place("b")
		s.Exec("SELECT pg_terminate_backend(pid)" + listeners)
		testlocker.Release(t, l)
		start := time.Now()
		testlocker.Release(t, testlocker.Granted(t, p))
		testscope.InTime(t, time.Since(start), distributed.HeartbeatInterval(ttl)+8*time.Second, "a hand-over without its notification")
	}
	require.Eventually(t, twoListen, testlocker.Patience, 10*time.Millisecond)
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	testlocker.HotKey(t, opener(t, dbtest.SharedPostgres(t)))
}
