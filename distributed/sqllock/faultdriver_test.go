package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wllock/wllock/distributed/sqllock"
)

// wire is what lies between database/sql and a driver. It notes the statements, and breaks some.
type wire struct {
	driver.Connector
	dialect sqllock.Dialect

	mu    sync.Mutex
	seen  []string                // guarded by mu; the kinds of statements so far, in the order of their first
	args  []any                   // guarded by mu; all arguments so far
	judge func(kind string) fault // guarded by mu; nil: nothing is broken
	count map[string]int          // guarded by mu; statements by their kind
}

// fault is what becomes of a statement.
type fault string

const (
	passes      fault = ""
	lostRequest fault = "lost before it is sent" // the connection breaks, and the statement does not reach the database
	lostReply   fault = "lost before the reply"  // it is carried out, and the connection breaks
	collides    fault = "rolled back"            // as a victim of a deadlock, or of a locked file
)

var errCut = errors.New("the connection is cut")

// breaks has the nth statement of that kind broken from now on.
func (w *wire) breaks(kind string, nth int, how fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = func(k string) fault {
		if k != kind {
			return passes
		}
		if nth--; nth > 0 {
			return passes
		}
		w.judge = nil
		return how
	}
}

// breaksBy asks judge of every statement.
func (w *wire) breaksBy(judge func(kind string) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = judge
}

// kinds returns the statements so far, and how often each.
func (w *wire) kinds() (kinds []string, count map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), maps.Clone(w.count)
}

func (w *wire) arguments() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]any(nil), w.args...)
}

// kindLength is enough to tell all statements from each other.
const kindLength = 44

func kindOf(text string) string {
	kind := strings.Join(strings.Fields(text), " ")
	return kind[:min(len(kind), kindLength)]
}

func (w *wire) verdict(kind string, args []driver.NamedValue) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = make(map[string]int)
	}
	if w.count[kind]++; w.count[kind] == 1 {
		w.seen = append(w.seen, kind)
	}
	for _, a := range args {
		w.args = append(w.args, a.Value)
	}
	if w.judge == nil {
		return passes
	}
	return w.judge(kind)
}

func (w *wire) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: c, w: w}, nil
}

// wireConn is a connection. database/sql uses it from one goroutine at a time.
type wireConn struct {
	driver.Conn
	w    *wire
	dead bool
}

// cut ends the connection. database/sql closes it as soon as it gets the error, after its prepared statements: the driver of SQLite
// must not be asked to close those of a connection that is closed.
func (c *wireConn) cut() { c.dead = true }

func (c *wireConn) Close() error {
	c.dead = true
	return c.Conn.Close()
}

// Prepare fails, so that every statement comes as text, and none is left to be closed on a connection that was cut.
func (c *wireConn) Prepare(string) (driver.Stmt, error) { return nil, errUnprepared }

var errUnprepared = errors.New("not prepared")

func (c *wireConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.dead && (!ok || v.IsValid())
}

func (c *wireConn) ResetSession(ctx context.Context) error {
	if c.dead {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *wireConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *wireConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// do runs a statement, or breaks it: finish ends one that was carried out and whose reply is lost, and collide one that is rolled back.
func (c *wireConn) do(kind string, args []driver.NamedValue, run func() error, finish func(), collide func() error) error {
	if c.dead {
		return errCut
	}
	switch c.w.verdict(kind, args) {
	case lostRequest:
		c.cut()
		return errCut
	case lostReply:
		_ = run()
		finish()
		c.cut()
		return errCut
	case collides:
		return collide()
	}
	return run()
}

// collide leaves the transaction as the database would, and returns its error.
func (c *wireConn) collide() error {
	exec := func(text string) {
		if e, ok := c.Conn.(driver.ExecerContext); ok {
			_, _ = e.ExecContext(context.Background(), text, nil)
		}
	}
	switch c.w.dialect {
	case sqllock.PostgreSQL:
		exec("SELECT 1/0") // nothing but a rollback works afterwards
	case sqllock.MySQL:
		exec("ROLLBACK")
	}
	return collision(c.w.dialect)
}

// collision is the error that a driver returns to the victim.
func collision(d sqllock.Dialect) error {
	switch d {
	case sqllock.PostgreSQL:
		return &pgconn.PgError{Severity: "ERROR", Code: "40P01", Message: "deadlock detected"}
	case sqllock.MySQL:
		return &mysql.MySQLError{Number: 1213, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock found when trying to get lock"}
	}
	return busy{}
}

// busy is SQLITE_BUSY.
type busy struct{}

func (busy) Error() string { return "database is locked" }
func (busy) Code() int     { return 5 }

func (c *wireConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Result, err error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	run := func() error {
		r, err = e.ExecContext(ctx, text, args)
		return err
	}
	err = c.do(kindOf(text), args, run, nothing, c.collide)
	return r, err
}

func nothing() {}

func (c *wireConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Rows, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	run := func() error {
		r, err = q.QueryContext(ctx, text, args)
		return err
	}
	finish := func() {
		if r != nil {
			drain(r)
			r = nil
		}
	}
	err = c.do(kindOf(text), args, run, finish, c.collide)
	return r, err
}

// drain reads to the end, as a client would have.
func drain(r driver.Rows) {
	for row := make([]driver.Value, len(r.Columns())); r.Next(row) == nil; {
	}
	_ = r.Close()
}

func (c *wireConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	p, ok := c.Conn.(driver.ConnPrepareContext)
	if !ok || c.dead {
		return nil, driver.ErrBadConn
	}
	return p.PrepareContext(ctx, text)
}

func (c *wireConn) BeginTx(ctx context.Context, o driver.TxOptions) (tx driver.Tx, err error) {
	run := func() error {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
		return err
	}
	if err = c.do("BEGIN", nil, run, nothing, run); err != nil {
		return nil, err
	}
	return wireTx{tx, c}, nil
}

type wireTx struct {
	driver.Tx
	c *wireConn
}

func (t wireTx) Commit() error {
	return t.c.do("COMMIT", nil, t.Tx.Commit, nothing, func() error {
		_ = t.Tx.Rollback()
		return collision(t.c.w.dialect)
	})
}

func (t wireTx) Rollback() error {
	if t.c.dead {
		return io.ErrClosedPipe
	}
	return t.Tx.Rollback()
}
