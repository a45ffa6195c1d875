package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	"github.com/wllock/wllock/internal/testlocker"
)

// database is one of a test's own with the tables, and a wire to it that can be broken.
type database struct {
	dialect   Dialect
	url       string
	server    *dbtest.Server // nil: SQLite
	connector driver.Connector
	wire      *wire
}

// databases are the three kinds. Tests share the servers.
var databases = dbtest.Tested(map[string]func(t locktest.TB) *database{"sqlite": newSQLite, "postgres": newPostgres, "mariadb": newMariaDB})

func newSQLite(t locktest.TB) *database {
	return newFile(t, "journal_mode(WAL)", "busy_timeout(200)", "synchronous(NORMAL)")
}
func newPostgres(t locktest.TB) *database { return newServer(t, dbtest.SharedPostgres(t)) }
func newMariaDB(t locktest.TB) *database  { return newServer(t, dbtest.SharedMariaDB(t)) }

// newFile is a database of SQLite whose connections have these settings.
func newFile(t locktest.TB, pragmas ...string) *database {
	dir, err := os.MkdirTemp("", "sqllock")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return migrated(t, at("file:"+filepath.Join(dir, "locks.db")+"?_pragma="+strings.Join(pragmas, "&_pragma=")))
}

func newServer(t locktest.TB, s *dbtest.Server) *database {
	d := at(s.URL())
	d.server = s
	return migrated(t, d)
}

func at(url string) *database {
	return (&database{dialect: dialectOf(url), url: url}).over(connectorOf(url))
}

// over is the same database over another wire.
func (d *database) over(c driver.Connector) *database {
	return &database{dialect: d.dialect, url: d.url, server: d.server, connector: c, wire: &wire{dialect: d.dialect}}
}

func migrated(t locktest.TB, d *database) *database {
	db := d.open()
	defer func() { _ = db.Close() }()
	if err := Migrate(context.Background(), db, d.dialect); err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func dialectOf(url string) Dialect {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "postgres":
		return PostgreSQL
	case "mysql":
		return MySQL
	}
	return SQLite
}

func connectorOf(url string) driver.Connector {
	switch dialectOf(url) {
	case PostgreSQL:
		return stdlib.GetConnector(*pgConfig(url))
	case MySQL:
		return must(mysql.NewConnector(myConfig(url)))
	}
	return liteConnector(url)
}

func pgConfig(url string) *pgx.ConnConfig { return must(pgx.ParseConfig(url)) }

func myConfig(rawURL string) *mysql.Config {
	u := must(url.Parse(rawURL))
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams, c.Logger = true, &mysql.NopLogger{}
	return c
}

// liteConnector is a Connector for SQLite's driver, which has none.
type liteConnector string

func (liteConnector) Driver() driver.Driver { return &sqlite.Driver{} }
func (c liteConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(string(c))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// openURL opens a Backend as a process of its own.
func openURL(url string) (distributed.Backend, error) {
	return New(sql.OpenDB(connectorOf(url)), dialectOf(url), WithOwnedDB())
}

func (d *database) open() *sql.DB {
	db := sql.OpenDB(wired{d.connector, d.wire})
	db.SetMaxIdleConns(4)
	return db
}

// pool is open until the end of a test.
func (d *database) pool(t locktest.TB) *sql.DB {
	db := d.open()
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// backend opens a Backend on a pool of its own.
func (d *database) backend(t locktest.TB, opts ...Option) *Backend {
	return backendOn(t, d.pool(t), d.dialect, opts...)
}

func backendOn(t locktest.TB, db *sql.DB, d Dialect, opts ...Option) *Backend {
	b, err := New(db, d, opts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// parallel runs a test for each case, all at the same time.
func parallel[C any](t *testing.T, cases map[string]C, test func(t *testing.T, name string, c C)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, c)
		})
	}
}

// each runs a test on a database of each kind.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	parallel(t, databases, func(t *testing.T, _ string, open func(locktest.TB) *database) { test(t, open(t)) })
}

// onServers is each for those that have a server.
func onServers(t *testing.T, test func(t *testing.T, d *database)) {
	each(t, func(t *testing.T, d *database) {
		if d.server != nil {
			test(t, d)
		}
	})
}

// eachBackend is each with a Backend.
func eachBackend(t *testing.T, test func(t *testing.T, d *database, b *Backend)) {
	each(t, func(t *testing.T, d *database) { test(t, d, d.backend(t)) })
}

// onOwnServers is onServers for servers of the test's own. They run at the same time, however many tests do: they wait most of the time.
func onOwnServers(t *testing.T, test func(t *testing.T, d *database), opts ...dbtest.Option) {
	t.Parallel()
	opts = append(opts, dbtest.NoSync())
	var running sync.WaitGroup
	for name, start := range dbtest.Tested(map[string]func(dbtest.TB, ...dbtest.Option) *dbtest.Server{
		"postgres": dbtest.Postgres, "mariadb": dbtest.MariaDB,
	}) {
		running.Go(func() { t.Run(name, func(t *testing.T) { test(t, newServer(t, start(t, opts...))) }) })
	}
	running.Wait()
}

const (
	// ttl is that of leases that expire in a test: short, and long enough for a busy machine.
	ttl = 2 * time.Second
	// slack is what a machine that is many times overloaded may add to a time that is promised. Logs have the times.
	slack = 8 * time.Second
)

var (
	reading, permits, lasting = testlocker.AsReader, testlocker.ForOneOf, testlocker.Lasting
	awaited, ended, free      = testlocker.Granted, testlocker.Lost, testlocker.Release
	fenceOf                   = testlocker.Fence
)

func noWait(r *distributed.Request) { r.NoWait = true }

func by(instance string) testlocker.Change {
	return func(r *distributed.Request) { r.Instance = instance }
}

func prevIs(l distributed.Lease) testlocker.Change {
	return func(r *distributed.Request) { r.Prev = l }
}

// try enters with the usual request: exclusive, for a minute.
func try(ctx context.Context, b *Backend, key string, more ...testlocker.Change) (distributed.Lease, distributed.Place, error) {
	req := distributed.Request{Key: key, Instance: "instance", TTL: time.Minute}
	for _, f := range more {
		f(&req)
	}
	return b.Enter(ctx, req)
}

// enter gets a lease at once.
func enter(t testing.TB, b *Backend, key string, more ...testlocker.Change) distributed.Lease {
	t.Helper()
	l, _, err := try(t.Context(), b, key, more...)
	require.NoError(t, err)
	require.NotNil(t, l)
	return l
}

func queue(t testing.TB, b *Backend, key string, more ...testlocker.Change) distributed.Place {
	t.Helper()
	_, p, err := try(t.Context(), b, key, more...)
	require.NoError(t, err)
	require.NotNil(t, p)
	return p
}

// acquired gets a lease, now or later, however often the database is away. It is for all goroutines: if it is nil the test has failed.
func acquired(t *testing.T, b *Backend, key string, more ...testlocker.Change) (l distributed.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlocker.Patience)
	defer cancel()
	var err error
	for again := true; again; again = l == nil && ctx.Err() == nil && (err == nil || errors.Is(err, distributed.ErrUnavailable)) {
		var p distributed.Place
		if l, p, err = try(ctx, b, key, more...); p == nil {
			continue
		}
		select {
		case l = <-p.Granted():
		case <-ctx.Done():
		}
	}
	assert.NotNil(t, l, "%v", err)
	return l
}

// run carries out a statement with the names of the tables in braces.
func run(t testing.TB, b *Backend, text string, args ...any) {
	t.Helper()
	q := b.dialect.compile(b.st().text(text))
	_, err := b.db.ExecContext(t.Context(), q.text, q.args(args...)...)
	require.NoError(t, err)
}

// ask is run for a row.
func ask(t testing.TB, b *Backend, text string, to ...any) {
	t.Helper()
	require.NoError(t, b.db.QueryRowContext(t.Context(), b.st().text(text)).Scan(to...))
}

func rowsOf(t *testing.T, b *Backend, table string) (n int) {
	t.Helper()
	ask(t, b, "SELECT COUNT(*) FROM {"+table+"}", &n)
	return n
}

// aged makes everything in the database older. It is as if the clock had been set forward, or, with a negative time, back.
func aged(t *testing.T, b *Backend, by time.Duration) {
	t.Helper()
	run(t, b, "UPDATE {locks} SET update_time = update_time - $1, expires_at = expires_at - $1, since = since - $1, fence = fence - 1000 * $1", micros(by))
	run(t, b, "UPDATE {waiters} SET expires_at = expires_at - $1", micros(by))
	run(t, b, "UPDATE {meta} SET expires_at = expires_at - $1 WHERE expires_at > 0", micros(by))
	run(t, b, "UPDATE {meta} SET value = value - $1 WHERE name = 'reaper' AND value > 0", micros(by))
}
