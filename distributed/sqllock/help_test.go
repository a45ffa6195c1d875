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
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
)

// database is a database of a test's own: what connects to it, with a wire that can be cut.
type database struct {
	dialect   Dialect
	connector func() driver.Connector
	wire      *wire
}

// databases are the three, by their dialect's name.
var databases = dbtest.Tested(map[string]func(t locktest.TB) *database{"sqlite": newSQLite, "postgres": newPostgres, "mariadb": newMariaDB})

// durable has commits wait for the disk, for benchmarks.
var durable = os.Getenv("WLLOCK_DURABLE") == "1"

func newSQLite(t locktest.TB) *database {
	dir, err := os.MkdirTemp("", "sqllock")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dsn := "file:" + filepath.Join(dir, "locks.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(200)&_pragma=synchronous(NORMAL)"
	if durable {
		dsn = strings.Replace(dsn, "NORMAL", "FULL", 1)
	}
	return migrated(t, &database{dialect: SQLite, connector: func() driver.Connector { return dsnConnector{&sqlite.Driver{}, dsn} }})
}

func newPostgres(t locktest.TB) *database {
	server := dbtest.SharedPostgres
	if durable {
		server = func(t dbtest.TB) *dbtest.Server { return dbtest.Postgres(t) }
	}
	config, err := pgx.ParseConfig(server(t).URL())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return migrated(t, &database{dialect: PostgreSQL, connector: func() driver.Connector { return stdlib.GetConnector(*config) }})
}

func newMariaDB(t locktest.TB) *database {
	server := dbtest.SharedMariaDB
	if durable {
		server = func(t dbtest.TB) *dbtest.Server { return dbtest.MariaDB(t) }
	}
	u, err := url.Parse(server(t).URL())
	if err != nil {
		t.Fatalf("%v", err)
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return migrated(t, &database{dialect: MySQL, connector: func() driver.Connector { return connector }})
}

func migrated(t locktest.TB, d *database) *database {
	d.wire = &wire{}
	db := d.open()
	defer func() { _ = db.Close() }()
	if err := Migrate(context.Background(), db, d.dialect); err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// open opens the database over the wire.
func (d *database) open() *sql.DB {
	db := sql.OpenDB(wired{d.connector(), d.wire})
	db.SetMaxIdleConns(4)
	return db
}

// backend opens a Backend that closes its database.
func (d *database) backend(t locktest.TB, opts ...Option) *Backend {
	b, err := New(d.open(), d.dialect, opts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close(); _ = b.db.Close() })
	return b
}

// dsnConnector is a Connector for a driver that has none.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// wire counts statements, and can be cut: then every statement hangs until its context ends.
type wire struct {
	statements atomic.Int64
	mu         sync.Mutex
	cut        chan struct{}                          // guarded by mu; nil: it is not; closed when it is healed
	lose       func(text string) (before, after bool) // guarded by mu; what is not carried out, or not answered
	log        func(text string)
	stage      func(text string, args []driver.NamedValue, fn func() error) error // guarded by mu; in place of the above
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case cut && w.cut == nil:
		w.cut = make(chan struct{})
	case !cut && w.cut != nil:
		close(w.cut)
		w.cut = nil
	}
}

func (w *wire) logTo(log func(text string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = log
}

var errCut = errors.New("the wire was cut")

// pass carries out fn, unless the wire is cut.
func (w *wire) pass(ctx context.Context, text string, args []driver.NamedValue, fn func() error) error {
	w.mu.Lock()
	cut, lose, log, stage := w.cut, w.lose, w.log, w.stage
	w.mu.Unlock()
	if stage != nil {
		return stage(text, args, fn)
	}
	if log != nil {
		log(text)
	}
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var before, after bool
	if lose != nil {
		before, after = lose(text)
	}
	if before {
		return errCut
	}
	w.statements.Add(1)
	if err := fn(); err != nil || !after {
		return err
	}
	return errCut
}

// wired is a Connector whose connections go over a wire.
type wired struct {
	driver.Connector
	wire *wire
}

func (c wired) Connect(ctx context.Context) (conn driver.Conn, err error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &wiredConn{inner, c.wire}, nil
}

// wiredConn passes on what the three drivers can do.
type wiredConn struct {
	driver.Conn
	wire *wire
}

func (c *wiredConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.wire.pass(ctx, text, args, func() (err error) {
		r, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
		return err
	})
	return r, err
}

func (c *wiredConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Rows, err error) {
	err = c.wire.pass(ctx, text, args, func() (err error) {
		r, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
		return err
	})
	return drained(r, err)
}

func (c *wiredConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &wiredStmt{stmt, text, c}, nil
}

type wiredStmt struct {
	driver.Stmt
	text string
	conn *wiredConn
}

func (s *wiredStmt) CheckNamedValue(v *driver.NamedValue) error { return s.conn.CheckNamedValue(v) }

func (s *wiredStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.conn.wire.pass(ctx, s.text, args, func() (err error) {
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return r, err
}

func (s *wiredStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.conn.wire.pass(ctx, s.text, args, func() (err error) {
		r, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		return err
	})
	return drained(r, err)
}

// drained ends a query whose answer was lost, so that it is carried out to its end.
func drained(r driver.Rows, err error) (driver.Rows, error) {
	if err == nil || r == nil {
		return r, err
	}
	for values := make([]driver.Value, len(r.Columns())); r.Next(values) == nil; {
	}
	_ = r.Close()
	return nil, err
}

func (c *wiredConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.wire.pass(ctx, "BEGIN", nil, func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		if tx != nil { // begun, but the answer was lost: a driver would close the connection, and the server roll back
			_ = tx.Rollback()
		}
		return nil, err
	}
	return &wiredTx{tx, c.wire}, nil
}

func (c *wiredConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *wiredConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *wiredConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type wiredTx struct {
	driver.Tx
	wire *wire
}

func (t *wiredTx) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	sent := false
	err := t.wire.pass(ctx, "COMMIT", nil, func() error { sent = true; return t.Tx.Commit() })
	if !sent { // a driver would close the connection, and the server roll back
		_ = t.Tx.Rollback()
	}
	return err
}
