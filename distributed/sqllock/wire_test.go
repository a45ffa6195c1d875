package sqllock

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// wire lies between database/sql and a driver. It counts what is carried out, and a test may watch or break it.
type wire struct {
	dialect    Dialect
	statements atomic.Int64

	mu     sync.Mutex               // guards all below
	filter func(s *statement) error // nil: all are carried out
	healed chan struct{}            // closed when a cut ends, nil: there is none
	conns  []*wireConn              // so far
}

// statement is one on its way to the database.
type statement struct {
	ctx      context.Context
	text     string
	args     []driver.NamedValue
	prepared bool
	conn     *wireConn
	run      func() error // carries it out
}

// filtered has all statements from now on go through a filter; nil: they are carried out.
func (w *wire) filtered(filter func(s *statement) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filter = filter
}

// logTo tells the text of each statement; nil: no more.
func (w *wire) logTo(log func(text string)) {
	w.filtered(func(s *statement) error {
		log(s.text)
		return s.run()
	})
}

// setCut has every statement hang until that ends, or its context.
func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if healed := w.healed; healed != nil {
		close(healed)
	}
	w.healed, w.filter = nil, nil
	if !cut {
		return
	}
	healed := make(chan struct{})
	w.healed, w.filter = healed, func(s *statement) error {
		select {
		case <-healed:
			return s.run()
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// fault is what becomes of a statement.
type fault string

const (
	passes      fault = ""
	lostRequest fault = "lost before it is sent" // the connection breaks, and the statement does not reach the database
	lostReply   fault = "lost before the reply"  // it is carried out, and the connection breaks
	collides    fault = "rolled back"            // as a victim of a deadlock, or of a locked file
)

// breaksBy asks judge what becomes of each statement. One call is made at a time.
func (w *wire) breaksBy(judge func(s *statement) fault) {
	var mu sync.Mutex
	w.filtered(func(s *statement) error {
		mu.Lock()
		how := judge(s)
		mu.Unlock()
		return s.breaks(how)
	})
}

// breaksOnce breaks the first statement with that word, and tells whether there was one.
func (w *wire) breaksOnce(word string, how fault) (broken func() bool) {
	var done atomic.Bool
	w.breaksBy(func(s *statement) fault {
		begins := strings.HasPrefix(s.text, "BEGIN ") // PostgreSQL's says READ COMMITTED
		if strings.Contains(s.text, word) && !begins && done.CompareAndSwap(false, true) {
			return how
		}
		return passes
	})
	return func() bool {
		w.filtered(nil)
		return done.Load()
	}
}

var errCut = errors.New("the wire was cut")

func (s *statement) breaks(how fault) error {
	switch how {
	case lostReply:
		_ = s.run()
		fallthrough
	case lostRequest:
		s.conn.dead.Store(true)
		return errCut
	case collides:
		return s.collide()
	}
	return s.run()
}

// collide leaves the transaction as the database would, and returns the error of its driver.
func (s *statement) collide() error {
	switch s.conn.wire.dialect {
	case PostgreSQL:
		_, _ = s.conn.innerConn.ExecContext(context.Background(), "SELECT 1/0", nil) // nothing but a rollback works afterwards
		return &pgconn.PgError{Severity: "ERROR", Code: "40P01", Message: "deadlock detected"}
	case MySQL:
		_, _ = s.conn.innerConn.ExecContext(context.Background(), "ROLLBACK", nil)
		return &mysql.MySQLError{Number: 1213, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock found"}
	}
	return liteError(5)
}

type liteError int

func (liteError) Error() string { return "an error of SQLite" }
func (e liteError) Code() int   { return int(e) }

// pass has the filter see to a statement. On a connection that is broken nothing goes but what the server does by itself.
func (w *wire) pass(s *statement) error {
	if s.conn.dead.Load() && s.text != "ROLLBACK" {
		return errCut
	}
	w.mu.Lock()
	filter := w.filter
	w.mu.Unlock()
	if filter == nil {
		return s.run()
	}
	return filter(s)
}

// wired is a Connector whose connections go over a wire.
type wired struct {
	driver.Connector
	wire *wire
}

func (c wired) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &wireConn{innerConn: inner.(innerConn), wire: c.wire}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.conns = append(c.wire.conns, conn)
	return conn, nil
}

func (w *wire) connections() []*wireConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.conns)
}

// innerConn is what all three drivers can do. Nothing but tests uses their transactions: those of a Backend are statements.
type innerConn interface {
	driver.Conn
	driver.SessionResetter
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
}

type wireConn struct {
	innerConn
	wire *wire
	dead atomic.Bool // it is broken, and closed by database/sql when it is given back, or it is closed
}

func (c *wireConn) Close() error {
	c.dead.Store(true)
	return c.innerConn.Close()
}

// carried has a statement go over the wire.
func carried[R any](c *wireConn, s statement, carryOut func() (R, error)) (r R, err error) {
	s.conn = c
	s.run = func() error {
		c.wire.statements.Add(1)
		r, err = carryOut()
		return err
	}
	err = c.wire.pass(&s)
	return r, err
}

func (c *wireConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return carried(c, statement{ctx: ctx, text: text, args: args}, func() (driver.Result, error) {
		return c.innerConn.ExecContext(ctx, text, args)
	})
}

func (c *wireConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return drained(carried(c, statement{ctx: ctx, text: text, args: args}, func() (driver.Rows, error) {
		return c.innerConn.QueryContext(ctx, text, args)
	}))
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

func (c *wireConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if c.dead.Load() {
		return nil, errCut
	}
	stmt, err := c.innerConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &wireStmt{stmt, text, c}, nil
}

func (c *wireConn) IsValid() bool {
	v, ok := c.innerConn.(driver.Validator)
	return !c.dead.Load() && (!ok || v.IsValid())
}

func (c *wireConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.innerConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type wireStmt struct {
	driver.Stmt
	text string
	conn *wireConn
}

func (s *wireStmt) CheckNamedValue(v *driver.NamedValue) error { return s.conn.CheckNamedValue(v) }

func (s *wireStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return carried(s.conn, statement{ctx: ctx, text: s.text, args: args, prepared: true}, func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s *wireStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return drained(carried(s.conn, statement{ctx: ctx, text: s.text, args: args, prepared: true}, func() (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	}))
}
