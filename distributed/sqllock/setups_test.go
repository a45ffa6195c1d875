package sqllock

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
)

// setups are databases as applications have set them up.
var setups = map[string]func(t *testing.T) *database{
	"postgres, simple protocol": pgWith(func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }),
	"postgres, exec":            pgWith(func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec }),
	"postgres, serializable":    pgWith(func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" }),
	"postgres, repeatable read": pgWith(func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "repeatable read" }),
	"mariadb, serializable":     myWith(func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'"} }),
	"mariadb, read committed":   myWith(func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'READ-COMMITTED'"} }),
	"mariadb, snapshots":        myWith(func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "ON"} }),
	"mariadb, found rows":       myWith(func(c *mysql.Config) { c.InterpolateParams, c.ClientFoundRows = false, true }),
	"sqlite, journal":           func(t *testing.T) *database { return newFile(t, "journal_mode(DELETE)", "busy_timeout(0)") },
	"sqlite, busy 0":            func(t *testing.T) *database { return newFile(t, "journal_mode(WAL)", "busy_timeout(0)") },
}

func pgWith(change func(*pgx.ConnConfig)) func(t *testing.T) *database {
	return func(t *testing.T) *database {
		d := newPostgres(t)
		c := pgConfig(d.url)
		change(c)
		return d.over(stdlib.GetConnector(*c))
	}
}

func myWith(change func(*mysql.Config)) func(t *testing.T) *database {
	return func(t *testing.T) *database {
		d := newMariaDB(t)
		c := myConfig(d.url)
		change(c)
		return d.over(must(mysql.NewConnector(c)))
	}
}

// Exclusion and the order of fences do not depend on the driver's protocol, the isolation level, or how SQLite's file is opened.
func TestSetups(t *testing.T) {
	for name, open := range dbtest.Tested(setups) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			var inside atomic.Int32
			var entered int
			var fence uint64
			var all sync.WaitGroup
			for range 6 {
				b := d.backend(t)
				all.Go(func() {
					for range 5 {
						l := acquired(t, b, "k", by(b.process))
						if l == nil {
							return
						}
						assert.EqualValues(t, 1, inside.Add(1), "callers inside")
						next, _ := l.NextFence()
						assert.Greater(t, next, fence)
						fence = next
						entered++
						inside.Add(-1)
						assert.NoError(t, l.Release(t.Context()))
					}
				})
			}
			all.Wait()
			require.Equal(t, 30, entered)
		})
	}
}
