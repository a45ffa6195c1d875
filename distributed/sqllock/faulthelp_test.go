package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	// faultTTL is that of leases that expire in these tests: short, and long enough for a busy machine.
	faultTTL = 2 * time.Second
	// keptTTL is that of leases that expire, but not before a test wants it.
	keptTTL = 2 * faultTTL
	// safeTTL is that of leases that must not expire.
	safeTTL = time.Minute
	// slack is what a machine that is many times overloaded may add to a time that is promised. Logs have the times.
	slack = 8 * time.Second
	// forever is how long a test waits for what should happen soon. Only a test that fails waits so long.
	forever = 30 * time.Second
)

// database is what backends of a test share.
type database struct {
	name    string
	dialect sqllock.Dialect
	server  *dbtest.Server // nil: SQLite
	file    string         // of SQLite
}

// starter gets a database with the tables.
type starter func(t *testing.T, opts ...dbtest.Option) database

// servers returns the starters of those that have a server, one of the test's own.
func servers() map[string]starter {
	all := dialects(false)
	delete(all, "sqlite")
	return all
}

// dialects returns a starter for each kind; shared: on a server that other tests use, too.
func dialects(shared bool) map[string]starter {
	pick := func(shares func(dbtest.TB) *dbtest.Server, owns func(dbtest.TB, ...dbtest.Option) *dbtest.Server, name string, d sqllock.Dialect) starter {
		return func(t *testing.T, opts ...dbtest.Option) database {
			if shared {
				return migrated(t, database{name, d, shares(t), ""})
			}
			return migrated(t, database{name, d, owns(t, append(opts, dbtest.NoSync())...), ""})
		}
	}
	return map[string]starter{
		"postgres": pick(dbtest.SharedPostgres, dbtest.Postgres, "postgres", sqllock.PostgreSQL),
		"mariadb":  pick(dbtest.SharedMariaDB, dbtest.MariaDB, "mariadb", sqllock.MySQL),
		"sqlite": func(t *testing.T, _ ...dbtest.Option) database {
			return migrated(t, sqliteIn(t))
		},
	}
}

func sqliteIn(t *testing.T) database {
	return database{"sqlite", sqllock.SQLite, nil, filepath.Join(t.TempDir(), "db")}
}

// onEach runs a test on a database of each kind.
func onEach(t *testing.T, shared bool, test func(t *testing.T, d database)) {
	t.Helper()
	together(t, dialects(shared), func(t *testing.T, start starter) { test(t, start(t)) })
}

// onServers is onEach for those that have a server, one of the test's own.
func onServers(t *testing.T, test func(t *testing.T, d database), opts ...dbtest.Option) {
	t.Helper()
	together(t, servers(), func(t *testing.T, start starter) { test(t, start(t, opts...)) })
}

// together runs a test for some at the same time, however many tests run in parallel: they wait most of the time.
func together[T any](t *testing.T, all map[string]T, test func(*testing.T, T)) {
	t.Helper()
	t.Parallel()
	var running sync.WaitGroup
	for name, one := range dbtest.Tested(all) {
		running.Go(func() { t.Run(name, func(t *testing.T) { test(t, one) }) })
	}
	running.Wait()
}

func migrated(t *testing.T, d database) database {
	t.Helper()
	require.NoError(t, sqllock.Migrate(t.Context(), d.pool(t, nil), d.dialect))
	return d
}

// connector returns the driver's way to the database.
func (d database) connector() driver.Connector {
	if d.server == nil {
		return sqliteFile(d.file)
	}
	return connectorOf(d.server.URL())
}

func connectorOf(rawURL string) driver.Connector {
	u, err := url.Parse(rawURL)
	noError(err)
	if u.Scheme == "postgres" {
		c, err := pgx.ParseConfig(rawURL)
		noError(err)
		return stdlib.GetConnector(*c)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName, c.InterpolateParams = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/"), true
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	noError(err)
	return connector
}

// sqliteFile returns a connector of modernc.org/sqlite, with further pragmas.
func sqliteFile(file string, pragmas ...string) driver.Connector {
	pragmas = append([]string{"journal_mode(wal)", "synchronous(off)", "busy_timeout(20)"}, pragmas...)
	return dsnConnector{&sqlite.Driver{}, "file:" + file + "?_pragma=" + strings.Join(pragmas, "&_pragma=")}
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Driver() driver.Driver { return c.driver }

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }

// pool opens the database, through a wire unless that is nil.
func (d database) pool(t testing.TB, w *wire) *sql.DB {
	t.Helper()
	c := d.connector()
	if w != nil {
		w.Connector, w.dialect = c, d.dialect
		c = w
	}
	return poolOf(t, c)
}

func poolOf(t testing.TB, c driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(4)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// backend opens a Backend on a pool of its own.
func (d database) backend(t testing.TB, w *wire, opts ...sqllock.Option) *sqllock.Backend {
	t.Helper()
	return backendOn(t, d.pool(t, w), d.dialect, opts...)
}

func backendOn(t testing.TB, db *sql.DB, d sqllock.Dialect, opts ...sqllock.Option) *sqllock.Backend {
	t.Helper()
	b, err := sqllock.New(db, d, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

var names atomic.Int64

// newName is a name that is used once, of a key or an instance.
func newName(what string) string { return fmt.Sprintf("%s%d-%d", what, names.Add(1), rand.Uint32()) }

// request asks for a key as a new instance.
func request(key string, change ...func(*distributed.Request)) distributed.Request {
	r := distributed.Request{Key: key, Instance: newName("i"), TTL: faultTTL}
	for _, f := range change {
		f(&r)
	}
	return r
}

func shared(r *distributed.Request) { r.Mode = distributed.Shared }

func safely(r *distributed.Request) { r.TTL = safeTTL }

func kept(r *distributed.Request) { r.TTL = keptTTL }

// permit asks for the only one.
func permit(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, 1 }

func lasting(d time.Duration) func(*distributed.Request) {
	return func(r *distributed.Request) { r.TTL = d }
}

// place enters, more than once if the machine is so busy that there is no answer in time.
func place(t *testing.T, b *sqllock.Backend, r distributed.Request) distributed.Place {
	t.Helper()
	_, p, err := b.Enter(t.Context(), r)
	for start := time.Now(); errors.Is(err, distributed.ErrUnavailable) && time.Since(start) < forever; {
		_, p, err = b.Enter(t.Context(), r)
	}
	require.NoError(t, err)
	require.NotNil(t, p, "a lease where a place was expected")
	return p
}

// granted waits for the lease of a place; nil: the place was lost.
func granted(t *testing.T, p distributed.Place) distributed.Lease {
	t.Helper()
	select {
	case l := <-p.Granted():
		return l
	case <-time.After(forever):
		t.Fatal("neither granted nor lost")
		return nil
	}
}

// acquired enters until it has the lock, however often the database refuses.
func acquired(t *testing.T, b *sqllock.Backend, r distributed.Request) distributed.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), forever)
	defer cancel()
	for ctx.Err() == nil {
		l, p, err := b.Enter(ctx, r)
		if p != nil {
			l = granted(t, p)
		}
		if l != nil {
			return l
		}
		if err != nil {
			require.True(t, errors.Is(err, distributed.ErrUnavailable) || r.NoWait && errors.Is(err, distributed.ErrHeld), "%v", err)
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Fatal("the lock was not acquired")
	return nil
}

func release(t *testing.T, l distributed.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), forever)
	defer cancel()
	require.NoError(t, l.Release(ctx))
}

func fence(t *testing.T, l distributed.Lease) uint64 {
	t.Helper()
	n, ok := l.NextFence()
	require.True(t, ok)
	return n
}

func lost(t *testing.T, l distributed.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(forever):
		t.Fatal("a lease was not reported lost")
	}
}

// claimed waits until the lease was renewed for the first time.
func claimed(t *testing.T, l distributed.Lease) {
	t.Helper()
	window := l.Until()
	require.Eventually(t, func() bool { return l.Until().After(window) }, forever, time.Millisecond)
}

// within fails the test if something took longer than what is promised, and a busy machine's share.
func within(t *testing.T, what string, took, promised time.Duration) {
	t.Helper()
	t.Logf("%s took %v; promised: %v", what, took.Round(time.Millisecond), promised)
	testscope.InTime(t, took, promised+slack, what)
}
