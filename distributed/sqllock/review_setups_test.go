package sqllock

import (
	"database/sql/driver"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
)

// setups are databases as applications have set them up.
var setups = map[string]func(t locktest.TB) *database{
	"postgres, simple protocol": func(t locktest.TB) *database {
		return pgWith(t, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	},
	"postgres, exec": func(t locktest.TB) *database {
		return pgWith(t, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec })
	},
	"postgres, serializable": func(t locktest.TB) *database {
		return pgWith(t, func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" })
	},
	"postgres, repeatable read": func(t locktest.TB) *database {
		return pgWith(t, func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "repeatable read" })
	},
	"mariadb, serializable":   func(t locktest.TB) *database { return myWith(t, "tx_isolation", "'SERIALIZABLE'") },
	"mariadb, read committed": func(t locktest.TB) *database { return myWith(t, "tx_isolation", "'READ-COMMITTED'") },
	"mariadb, found rows":     func(t locktest.TB) *database { return myWith(t, "", "") },
	"mariadb, snapshots":      func(t locktest.TB) *database { return myWith(t, "innodb_snapshot_isolation", "ON") },
	"sqlite, journal": func(t locktest.TB) *database {
		return liteWith(t, "_pragma=journal_mode(DELETE)&_pragma=busy_timeout(0)")
	},
	"sqlite, busy 0": func(t locktest.TB) *database { return liteWith(t, "_pragma=journal_mode(WAL)&_pragma=busy_timeout(0)") },
}

func pgWith(t locktest.TB, change func(*pgx.ConnConfig)) *database {
	config, err := pgx.ParseConfig(dbtest.SharedPostgres(t).URL())
	if err != nil {
		t.Fatalf("%v", err)
	}
	change(config)
	return migrated(t, &database{dialect: PostgreSQL, connector: func() driver.Connector { return stdlib.GetConnector(*config) }})
}

func myWith(t locktest.TB, name, value string) *database {
	params := map[string]string{name: value}
	if value == "" {
		params = nil
	}
	connector := myConnector(t, params)
	return migrated(t, &database{dialect: MySQL, connector: func() driver.Connector { return connector }})
}

// myConnector connects with these session variables; with none statements are prepared, and count the rows found.
func myConnector(t locktest.TB, params map[string]string) driver.Connector {
	u, err := url.Parse(dbtest.SharedMariaDB(t).URL())
	if err != nil {
		t.Fatalf("%v", err)
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Params, config.InterpolateParams, config.ClientFoundRows = params, params != nil, params == nil
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return connector
}

func liteWith(t locktest.TB, pragmas string) *database {
	dir, err := os.MkdirTemp("", "sqllock")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dsn := "file:" + filepath.Join(dir, "locks.db") + "?" + pragmas
	return migrated(t, &database{dialect: SQLite, connector: func() driver.Connector { return dsnConnector{&sqlite.Driver{}, dsn} }})
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
						l := waitFor(t, b, "k")
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

// waitFor acquires a lock; nil: it has failed.
func waitFor(t *testing.T, b *Backend, key string) distributed.Lease {
	l, p, err := b.Enter(t.Context(), distributed.Request{Key: key, Instance: b.process, TTL: time.Minute})
	if !assert.NoError(t, err) || l != nil {
		return l
	}
	select {
	case l = <-p.Granted():
	case <-time.After(time.Minute):
	}
	assert.NotNil(t, l)
	return l
}
