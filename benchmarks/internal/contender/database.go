package contender

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// database is a pool of connections: one for every holder or waiter, all open, and none closed before the end.
type database interface {
	acquire(ctx context.Context) (session, error)
	Close() error
}

// session is a connection.
type session interface {
	send(ctx context.Context, q query) error
	// together is each in one round trip, where there is a server.
	together(ctx context.Context, all ...query) error
	// release gives it back. One that is in a transaction of PostgreSQL is closed, which rolls back.
	release()
}

// each sends one statement after the other, and fails with the first that fails.
func each(ctx context.Context, s session, all ...query) error {
	for _, q := range all {
		if err := s.send(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// query is a statement. errNoRow: a read has found nothing, or a write has changed nothing.
type query struct {
	text  string
	args  []any
	read  *int64 // where the value of its row goes; nil: it has none
	write bool   // it must change a row
}

func write(text string, args ...any) query { return query{text: text, args: args, write: true} }

func read(to *int64, text string, args ...any) query { return query{text: text, args: args, read: to} }

var errNoRow = errors.New("no row")

type scanner interface{ Scan(to ...any) error }

// outcome reads a query's row, or the number of rows that it has changed.
func (q query) outcome(row func() scanner, changed func() (int64, error)) error {
	var n int64
	var err error
	if q.read != nil {
		n, err = 1, row().Scan(q.read)
	} else {
		n, err = changed()
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && n == 0 && q.write {
		return errNoRow
	}
	return err
}

// filled takes all connections out of a pool at a time, so that they are open, and gives them back.
func filled(db database, n int) (_ database, err error) {
	defer func() { // after they are back
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	for range n {
		s, err := db.acquire(context.Background())
		if err != nil {
			return nil, err
		}
		defer s.release()
	}
	return db, nil
}

// sqlPool is a database over database/sql.
type sqlPool struct{ *sql.DB }

type sqlConn struct{ *sql.Conn }

func openMariaDB(o Options) (database, error) {
	dsn, err := server.MySQLDSN(o.Addr)
	if err != nil {
		return nil, err
	}
	return openSQL("mysql", dsn+"&multiStatements=true", o)
}

func openSQLite(o Options) (database, error) { return openSQL("sqlite", server.SQLiteDSN(o.Addr), o) }

func openSQL(driver, dsn string, o Options) (database, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(o.Workers)
	db.SetMaxIdleConns(o.Workers)
	return filled(sqlPool{db}, o.Workers)
}

func (p sqlPool) acquire(ctx context.Context) (session, error) {
	conn, err := p.Conn(ctx)
	return sqlConn{conn}, err
}

func (c sqlConn) release() { _ = c.Close() }

func (c sqlConn) together(ctx context.Context, all ...query) error { return each(ctx, c, all...) }

func (c sqlConn) send(ctx context.Context, q query) error {
	return q.outcome(func() scanner { return c.QueryRowContext(ctx, q.text, q.args...) }, func() (int64, error) {
		done, err := c.ExecContext(ctx, q.text, q.args...)
		if err != nil {
			return 0, err
		}
		return done.RowsAffected()
	})
}

// pgPool is a database over pgx itself, which is faster than through database/sql. It prepares a statement that has arguments, once per
// connection.
type pgPool struct{ *pgxpool.Pool }

type pgConn struct{ *pgxpool.Conn }

func openPostgres(o Options) (database, error) {
	config, err := pgxpool.ParseConfig(o.Addr)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(o.Workers)
	config.MaxConnLifetime, config.MaxConnIdleTime = time.Hour, time.Hour
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return filled(pgPool{pool}, o.Workers)
}

func (p pgPool) acquire(ctx context.Context) (session, error) {
	conn, err := p.Acquire(ctx)
	return pgConn{conn}, err
}

func (p pgPool) Close() error {
	p.Pool.Close()
	return nil
}

func (c pgConn) release() { c.Release() }

func (c pgConn) send(ctx context.Context, q query) error {
	return q.outcome(func() scanner { return c.QueryRow(ctx, q.text, q.args...) }, func() (int64, error) {
		done, err := c.Exec(ctx, q.text, q.args...)
		return done.RowsAffected(), err
	})
}

func (c pgConn) together(ctx context.Context, all ...query) error {
	var b pgx.Batch
	for _, q := range all {
		b.Queue(q.text, q.args...)
	}
	results := c.SendBatch(ctx, &b)
	for _, q := range all {
		err := q.outcome(func() scanner { return results.QueryRow() }, func() (int64, error) {
			done, err := results.Exec()
			return done.RowsAffected(), err
		})
		if err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}
