package sqlshop

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
)

// counting is a driver that counts the statements sent through another one.
type counting struct {
	driver.Connector
	n *atomic.Int64
}

func (c counting) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c.n}, nil
}

// countedConn passes on what database/sql may ask of a connection beyond driver.Conn. Where the other driver lacks an
// ability, it answers as database/sql would do itself.
type countedConn struct {
	driver.Conn
	n *atomic.Int64
}

func (c *countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.n.Add(1)
	return e.ExecContext(ctx, query, args)
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	c.n.Add(1)
	return q.QueryContext(ctx, query, args)
}

// BeginTx needs no check: the three drivers know it.
func (c *countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.n.Add(1)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return countedTx{tx, c.n}, nil
}

func (c *countedConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *countedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *countedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *countedConn) CheckNamedValue(v *driver.NamedValue) error {
	if k, ok := c.Conn.(driver.NamedValueChecker); ok {
		return k.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type countedTx struct {
	driver.Tx
	n *atomic.Int64
}

func (t countedTx) Commit() error {
	t.n.Add(1)
	return t.Tx.Commit()
}

func (t countedTx) Rollback() error {
	t.n.Add(1)
	return t.Tx.Rollback()
}
