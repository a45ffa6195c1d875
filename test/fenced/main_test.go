// Package fenced_test tries package fenced over real databases.
package fenced_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/dbtest"
)

func TestMain(m *testing.M) {
	text, isChild := os.LookupEnv(childEnv)
	if !isChild {
		goleak.VerifyTestMain(dbtest.Main(m))
	}
	var c counter
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// database is one of a test of its own.
type database struct {
	*sql.DB
	dialect     fenced.Dialect
	driver, dsn string
	again       func() *sql.DB // more connections, as another process has them
}

var dialects = map[string]fenced.Dialect{"postgres": fenced.PostgreSQL, "mariadb": fenced.MySQL, "sqlite": fenced.SQLite}

// kinds start a database for a test. at returns the address at which its server is reached.
var kinds = map[string]func(t testing.TB, at func(addr string) string) *database{
	"postgres": func(t testing.TB, at func(string) string) *database {
		s := dbtest.SharedPostgres(t)
		return open(t, fenced.PostgreSQL, "pgx", s.URLAt(at(s.Addr)))
	},
	"mariadb":             func(t testing.TB, at func(string) string) *database { return mariadb(t, at, false) },
	"mariadb, found rows": func(t testing.TB, at func(string) string) *database { return mariadb(t, at, true) },
	"sqlite": func(t testing.TB, _ func(string) string) *database {
		file := filepath.Join(t.TempDir(), "shop.db")
		return open(t, fenced.SQLite, "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	},
}

// near is the address itself.
func near(addr string) string { return addr }

func mariadb(t testing.TB, at func(string) string, foundRows bool) *database {
	s := dbtest.SharedMariaDB(t)
	u, err := url.Parse(s.URLAt(at(s.Addr)))
	require.NoError(t, err)
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.ClientFoundRows = u.User.Username(), "tcp", u.Host, strings.Trim(u.Path, "/"), foundRows
	c.Passwd, _ = u.User.Password()
	return open(t, fenced.MySQL, "mysql", c.FormatDSN())
}

func open(t testing.TB, d fenced.Dialect, driver, dsn string) *database {
	one := func() *sql.DB {
		db, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	db := &database{one(), d, driver, dsn, one}
	db.do(t, "CREATE TABLE stock (id INTEGER PRIMARY KEY, qty INTEGER NOT NULL)")
	db.do(t, "INSERT INTO stock VALUES (1000, 10)")
	return db
}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, near))
		})
	}
}

func (db *database) do(t testing.TB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// guard returns a Guard whose table exists.
func (db *database) guard(t testing.TB, opts ...fenced.Option) *fenced.Guard {
	t.Helper()
	g, err := fenced.New(db.DB, db.dialect, opts...)
	require.NoError(t, err)
	require.NoError(t, g.Migrate(t.Context()))
	return g
}

// qty is what the database has committed.
func (db *database) qty(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT qty FROM stock").Scan(&n))
	return n
}

// hold returns the context of a hold. It is of a backend of its own, so that several are held at a time, as by processes that were paused.
// Fences are times: those of later calls are greater.
func hold(t testing.TB, opts ...wllock.CallOption) context.Context {
	t.Helper()
	return holdKey(t, t.Context(), "1000", 10*time.Second, opts...)
}

func holdKey(t testing.TB, ctx context.Context, key string, ttl time.Duration, opts ...wllock.CallOption) context.Context {
	t.Helper()
	l, err := wllock.New("shop", memlock.New(), wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl))
	require.NoError(t, err)
	lock, err := l.Acquire(ctx, "product", key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = lock.Release(context.WithoutCancel(t.Context()))
		require.NoError(t, l.Close(context.WithoutCancel(t.Context())))
	})
	return lock.Context()
}

func fenceOf(t testing.TB, ctx context.Context) uint64 {
	t.Helper()
	held, ok := wllock.HeldFrom(ctx)
	require.True(t, ok)
	return held.Fence()
}

// sell sells one piece within a claimed transaction.
func sell(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE stock SET qty = qty - 1 WHERE id = 1000")
	return err
}

// nothing is what a transaction does that must not run.
func nothing(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error { return fmt.Errorf("%s: the function has run", t.Name()) }
}
