package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	maxTries     = 100              // for a buyer: a few seconds with the longest pause
	firstPause   = time.Millisecond // about an order; doubling it up to the longest lets a crowd of n spread over n orders
	longestPause = 64 * time.Millisecond
	longestTx    = 30 * time.Second // beyond anything that a row that others hold should cost
)

// retry tries again after a conflict and after a transient error of the database, until ctx ends.
func (s *Shop) retry(ctx context.Context, try func() error) error {
	pause := firstPause
	for range maxTries {
		err := try()
		if err == nil || !errors.Is(err, errConflict) && !s.dialect.transient(err) {
			return err
		}
		if err := Sleep(ctx, rand.N(pause)); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
	return ErrContended
}

// Sleep returns early, with the reason, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connected waits for a connection while patience lasts. The end of patience does not cut off what then runs on it: after a
// COMMIT without an answer nobody would know whether the piece is sold.
func (s *Shop) connected(patience context.Context, do func(context.Context, *sql.Conn) error) error {
	conn, err := s.db.Conn(patience)
	if err != nil {
		return errors.Join(context.Cause(patience), err)
	}
	defer func() { _ = conn.Close() }() // back into the pool
	ctx, cancel := context.WithTimeout(context.WithoutCancel(patience), longestTx)
	defer cancel()
	return do(ctx, conn)
}

// inside is what happens within a transaction, whose context is ctx.
type inside = func(ctx context.Context, tx *sql.Tx) error

// whole runs a transaction for a buyer with that patience.
func (s *Shop) whole(patience context.Context, do inside) error {
	return s.connected(patience, func(ctx context.Context, conn *sql.Conn) error { return s.inTx(ctx, conn.BeginTx, do) })
}

// repeat is whole with retries.
func (s *Shop) repeat(patience context.Context, do inside) error {
	return s.retry(patience, func() error { return s.whole(patience, do) })
}

// inTx runs a transaction of a pool or a connection, which ends with ctx.
func (s *Shop) inTx(ctx context.Context, begin func(context.Context, *sql.TxOptions) (*sql.Tx, error), do inside) error {
	s.Statements.Add(1)
	tx, err := begin(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	defer s.Statements.Add(1)            // COMMIT, or ROLLBACK
	if err := do(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// database is a pool, a connection of it or a transaction.
type database interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// row is what orders read of a product.
type row struct{ qty, version int64 }

// ask runs a statement that returns a row.
func (s *Shop) ask(ctx context.Context, in database, query string, args ...any) (r row, err error) {
	s.Statements.Add(1)
	err = in.QueryRowContext(ctx, s.dialect.sql(query), args...).Scan(&r.qty, &r.version)
	return r, err
}

// change runs a statement. If it changes no row, because its condition is not met, the error is otherwise.
func (s *Shop) change(ctx context.Context, in database, otherwise error, query string, args ...any) error {
	s.Statements.Add(1)
	done, err := in.ExecContext(ctx, s.dialect.sql(query), args...)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return otherwise
}
