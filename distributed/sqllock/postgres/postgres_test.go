package postgres_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// opener opens Backends as processes of their own do, which push hand-overs to each other.
func opener(t locktest.TB, s *dbtest.Server) func() distributed.Backend {
	t.Helper()
	if err := postgres.Migrate(context.Background(), s.URL()); err != nil {
		t.Fatalf("%v", err)
	}
	return func() distributed.Backend {
		b, err := postgres.Open(s.URL())
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
}

// The suite with hand-overs that are pushed; TestConformance of sqllock polls.
func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{TTL: time.Second, Skip: locktest.Brief, Open: func(t locktest.TB) locktest.Service {
		open := opener(t, dbtest.SharedPostgres(t))
		return locktest.Service{Backend: open(), Another: open}
	}})
}

// Whatever the policy of a database is, the sessions of Open are as a lock needs them.
func TestPoliciesOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := dbtest.SharedPostgres(t)
	open := opener(t, s)
	s.Exec(`DO $$ DECLARE setting text; BEGIN
  FOREACH setting IN ARRAY ARRAY['default_transaction_read_only = on', 'statement_timeout = 1', 'row_security = on', 'client_encoding = LATIN1'] LOOP
    EXECUTE format('ALTER DATABASE %I SET ', current_database()) || setting;
  END LOOP;
END $$`)
	b := open()
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Ping(t.Context()))
	ask := testlocker.Asker{T: t, B: b, Key: "k", TTL: time.Minute}
	testlocker.Release(t, ask.Lease("holder"))
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
