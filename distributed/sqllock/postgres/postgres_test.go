package postgres_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
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
