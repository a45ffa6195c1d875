package server

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // pgx
	_ "modernc.org/sqlite"             // sqlite

	"github.com/wllock/wllock/internal/dbtest"
)

// databaseConnections are enough for a connection for each of 8 x 16 callers, and for what holds none of them.
const databaseConnections = "300"

// Database is a database server with its default durability, or a file.
type Database struct {
	addr    string // a URL
	name    string // with %s for what version answers
	version string // query
	calls   string // query for the number of statements it has executed; "": it does not count
	cpu     func() time.Duration
	db      *sql.DB // of the benchmarks' own
	stop    func()
}

// StartMariaDB starts a MariaDB server.
func StartMariaDB(ctx context.Context) (*Database, error) {
	var s *dbtest.Server
	h, err := onHost(func(h *host) { s = dbtest.MariaDB(h, dbtest.Set("max-connections", databaseConnections)) })
	if err != nil {
		return nil, err
	}
	d := &Database{
		addr: s.URL(), name: "MariaDB %s", version: "SELECT VERSION()",
		calls: "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'",
		cpu:   func() time.Duration { return cpuOf(s.Pid()) }, stop: h.cleanUp,
	}
	dsn, err := MySQLDSN(d.addr)
	return d.open(ctx, "mysql", dsn, err)
}

// MySQLDSN returns what the driver calls the database of a mysql:// URL. Parameters are put into the statements, which saves
// a round trip each.
func MySQLDSN(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return "", err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.InterpolateParams = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username(), true
	c.Passwd, _ = u.User.Password()
	return c.FormatDSN(), nil
}

// StartPostgres starts a PostgreSQL server.
func StartPostgres(ctx context.Context) (*Database, error) {
	var s *dbtest.Server
	h, err := onHost(func(h *host) {
		s = dbtest.Postgres(h, dbtest.Set("max_connections", databaseConnections),
			dbtest.Set("shared_preload_libraries", "pg_stat_statements"))
	})
	if err != nil {
		return nil, err
	}
	d := &Database{
		addr: s.URL(), name: "PostgreSQL %s", version: "SHOW server_version", calls: "SELECT sum(calls)::bigint FROM pg_stat_statements",
		cpu: func() time.Duration { return cpuOfTree(s.Pid()) }, stop: h.cleanUp,
	}
	return d.open(ctx, "pgx", d.addr, nil, "CREATE EXTENSION pg_stat_statements")
}

// OpenSQLite makes a database file.
func OpenSQLite(ctx context.Context) (*Database, error) {
	dir, err := os.MkdirTemp("", "wllock-bench")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "locks.db")
	d := &Database{
		addr: "sqlite://" + path, name: "SQLite %s", version: "SELECT sqlite_version()",
		cpu: func() time.Duration { return 0 }, stop: func() { _ = os.RemoveAll(dir) },
	}
	return d.open(ctx, "sqlite", SQLiteDSN(d.addr), nil)
}

// SQLiteDSN returns what the driver calls the file of a sqlite:// URL: with a write-ahead log, and transactions that take the write
// lock at their beginning and wait for it.
func SQLiteDSN(addr string) string {
	return "file:" + strings.TrimPrefix(addr, "sqlite://") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(60000)&_txlock=immediate"
}

// DurableSQLiteDSN is one whose commits are on the disk when they return.
func DurableSQLiteDSN(addr string) string {
	return strings.Replace(SQLiteDSN(addr), "synchronous(NORMAL)", "synchronous(FULL)", 1)
}

// tables are for what is compared: a row per lock, and rows to be written.
var tables = []string{
	"CREATE TABLE bench_locks (name VARCHAR(100) PRIMARY KEY)",
	"CREATE TABLE bench_rows (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
}

// Rows is how many rows there are to be written.
const Rows = 1024

// open connects to the database and creates the tables, unless there was an error.
func (d *Database) open(ctx context.Context, driver, dsn string, err error, more ...string) (*Database, error) {
	if err == nil {
		d.db, err = sql.Open(driver, dsn)
	}
	for _, statement := range append(more, tables...) {
		if err == nil {
			_, err = d.db.ExecContext(ctx, statement)
		}
	}
	if err == nil {
		_, err = d.db.ExecContext(ctx, "INSERT INTO bench_rows VALUES "+rows())
	}
	if err != nil {
		d.Stop()
		return nil, fmt.Errorf("set up %s: %w", strings.TrimSuffix(d.name, " %s"), err)
	}
	return d, nil
}

func rows() string {
	all := make([]string, Rows)
	for i := range all {
		all[i] = fmt.Sprintf("(%d, 0)", i)
	}
	return strings.Join(all, ", ")
}

// Address returns the URL.
func (d *Database) Address() string { return d.addr }

// Version implements Service.
func (d *Database) Version(ctx context.Context) (string, error) {
	var v string
	err := d.db.QueryRowContext(ctx, d.version).Scan(&v)
	v, _, _ = strings.Cut(v, "-")
	v, _, _ = strings.Cut(v, " ")
	return fmt.Sprintf(d.name, v), err
}

// Flush does nothing: the locks of a round end with its connections and Lockers, which have been closed.
func (d *Database) Flush(context.Context) error { return nil }

// Commands counts the statements of all clients as "statement", this question included.
func (d *Database) Commands(ctx context.Context) (map[string]int64, error) {
	if d.calls == "" {
		return nil, nil
	}
	var n int64
	err := d.db.QueryRowContext(ctx, d.calls).Scan(&n)
	return map[string]int64{"statement": n}, err
}

// CPU implements Service. That of a file is the process's own.
func (d *Database) CPU() time.Duration { return d.cpu() }

// Stop implements Service.
func (d *Database) Stop() {
	if d.db != nil {
		_ = d.db.Close()
	}
	d.stop()
}
