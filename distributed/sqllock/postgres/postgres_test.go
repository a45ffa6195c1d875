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
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// The suite with hand-overs that are pushed; TestConformance of sqllock polls.
func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{TTL: time.Second, Skip: locktest.Brief, Open: func(t locktest.TB) locktest.Service {
		url := dbtest.SharedPostgres(t).URL()
		if err := postgres.Migrate(context.Background(), url); err != nil {
			t.Fatalf("%v", err)
		}
		open := func() distributed.Backend {
			b, err := postgres.Open(url)
			if err != nil {
				t.Fatalf("%v", err)
			}
			return b
		}
		return locktest.Service{Backend: open(), Another: open}
	}})
}

// Whatever the policy of a database is, the sessions of Open are as a lock needs them.
func TestPoliciesOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := dbtest.SharedPostgres(t)
	require.NoError(t, postgres.Migrate(t.Context(), s.URL()))
	s.Exec(`DO $$ DECLARE setting text; BEGIN
  FOREACH setting IN ARRAY ARRAY['default_transaction_read_only = on', 'statement_timeout = 1', 'row_security = on', 'client_encoding = LATIN1'] LOOP
    EXECUTE format('ALTER DATABASE %I SET ', current_database()) || setting;
  END LOOP;
END $$`)
	b, err := postgres.Open(s.URL())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Ping(t.Context()))
	ask := testlocker.Asker{T: t, B: b, Key: "k", TTL: time.Minute}
	testlocker.Release(t, ask.Lease("holder"))
}
