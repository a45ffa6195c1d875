package wllocktest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
)

// OpenDB opens a database for Overlap, which sees its statements. d is the driver, as sql.Open(...).Driver() returns it.
func OpenDB(d driver.Driver, dsn string) (*sql.DB, error) {
	c := &watched{driver: d, dsn: dsn}
	if d, ok := d.(driver.DriverContext); ok {
		inner, err := d.OpenConnector(dsn)
		if err != nil {
			return nil, err
		}
		c.inner = inner
	}
	return sql.OpenDB(c), nil
}

// watched is the connector, and the driver, of a database whose statements are seen.
type watched struct {
	driver driver.Driver
	dsn    string
	inner  driver.Connector // nil: the driver has none
	before atomic.Pointer[func(statement string)]
}

// saw is called before each statement.
func (w *watched) saw(statement string) {
	if f := w.before.Load(); f != nil {
		(*f)(statement)
	}
}

// Connect implements driver.Connector.
func (w *watched) Connect(ctx context.Context) (driver.Conn, error) {
	var c driver.Conn
	var err error
	if w.inner != nil {
		c, err = w.inner.Connect(ctx)
	} else {
		c, err = w.driver.Open(w.dsn)
	}
	if err != nil {
		return nil, err
	}
	return &watchedConn{c, w}, nil
}

// Driver implements driver.Connector. Overlap finds w by it.
func (w *watched) Driver() driver.Driver { return w }

// Open implements driver.Driver.
func (w *watched) Open(string) (driver.Conn, error) { return w.Connect(context.Background()) }

// watchedConn passes all on that package sql asks of a connection.
type watchedConn struct {
	driver.Conn
	w *watched
}

func (c *watchedConn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	if inner, ok := c.Conn.(driver.ConnPrepareContext); ok {
		s, err = inner.PrepareContext(ctx, query)
	} else {
		s, err = c.Prepare(query)
	}
	if err != nil {
		return nil, err
	}
	return &watchedStmt{s, query, c.w}, nil
}

func (c *watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	c.w.saw("BEGIN")
	if inner, ok := c.Conn.(driver.ConnBeginTx); ok {
		tx, err = inner.BeginTx(ctx, opts)
	} else {
		tx, err = c.Begin() //nolint:staticcheck // what a driver without BeginTx has
	}
	if err != nil {
		return nil, err
	}
	return watchedTx{tx, c.w}, nil
}

func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	inner, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.w.saw(query)
	return inner.ExecContext(ctx, query, args)
}

func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	inner, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.w.saw(query)
	return inner.QueryContext(ctx, query, args)
}

func (c *watchedConn) CheckNamedValue(v *driver.NamedValue) error { return checked(c.Conn, v) }

// checked has the driver convert an argument, or package sql if it does not.
func checked(by any, v *driver.NamedValue) error {
	if inner, ok := by.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *watchedConn) Ping(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.Pinger); ok {
		return inner.Ping(ctx)
	}
	return nil
}

func (c *watchedConn) ResetSession(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

func (c *watchedConn) IsValid() bool {
	inner, ok := c.Conn.(driver.Validator)
	return !ok || inner.IsValid()
}

type watchedTx struct {
	driver.Tx
	w *watched
}

func (t watchedTx) Commit() error {
	t.w.saw("COMMIT")
	return t.Tx.Commit()
}

type watchedStmt struct {
	driver.Stmt
	query string
	w     *watched
}

func (s *watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.w.saw(s.query)
	if inner, ok := s.Stmt.(driver.StmtExecContext); ok {
		return inner.ExecContext(ctx, args)
	}
	return s.Exec(unnamed(args)) //nolint:staticcheck // what a driver without ExecContext has
}

func (s *watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.w.saw(s.query)
	if inner, ok := s.Stmt.(driver.StmtQueryContext); ok {
		return inner.QueryContext(ctx, args)
	}
	return s.Query(unnamed(args)) //nolint:staticcheck // what a driver without QueryContext has
}

func (s *watchedStmt) CheckNamedValue(v *driver.NamedValue) error { return checked(s.Stmt, v) }

func unnamed(args []driver.NamedValue) (values []driver.Value) {
	for _, a := range args {
		values = append(values, a.Value)
	}
	return values
}
