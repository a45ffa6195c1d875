package contender

import (
	"context"
	"database/sql"
	"errors"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

const mysqlModule = "github.com/go-sql-driver/mysql"

func mariadbs() []Contender {
	return append(longer(ours("wllock", defaults, statements, overMariaDB), overMariaDB), Contender{
		Name:     "GET_LOCK",
		Settings: "GET_LOCK and RELEASE_LOCK, a connection for every holder or waiter",
		Module:   mysqlModule,
		Commands: statements,
		Open:     onMariaDB(func(db *sql.DB) Instance { return &getLock{db} }),
		Role:     Rival,
	}, Contender{
		Name:     "FOR UPDATE",
		Settings: "BEGIN and SELECT ... FOR UPDATE of a lock's row in one round trip, COMMIT; a connection for every holder or waiter",
		Module:   mysqlModule,
		Commands: statements,
		Open:     onMariaDB(func(db *sql.DB) Instance { return &mysqlRow{db: db} }),
		Role:     Rival,
	}, plain(mysqlModule, statements, func(o Options) (execer, error) {
		db, err := openMariaDB(o)
		return sqlPool{db}, err
	}))
}

func openMariaDB(o Options) (*sql.DB, error) {
	dsn, err := server.MySQLDSN(o.Addr)
	if err != nil {
		return nil, err
	}
	return opened("mysql", dsn+"&multiStatements=true", o)
}

func onMariaDB(instance func(*sql.DB) Instance) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		db, err := openMariaDB(o)
		if err != nil {
			return nil, err
		}
		return instance(db), nil
	}
}

// getLock is MySQL's lock by name, which belongs to a connection.
type getLock struct{ db *sql.DB }

// Do asks again every second, because the server does not notice that a waiter's connection was closed.
func (l *getLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back to the pool
	for locked := false; !locked; {
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", key).Scan(&locked); err != nil {
			return err
		}
	}
	err = f(ctx)
	_, released := conn.ExecContext(cleanUp, "DO RELEASE_LOCK(?)", key)
	return errors.Join(err, released)
}

func (l *getLock) Close() error { return l.db.Close() }

// mysqlRow locks a row for a transaction.
type mysqlRow struct {
	db *sql.DB
	rows
}

func (l *mysqlRow) Do(ctx context.Context, key string, f func(context.Context) error) error {
	err := l.ensure(key, func() error {
		_, err := l.db.ExecContext(ctx, "INSERT IGNORE INTO bench_locks VALUES (?)", key)
		return err
	})
	if err != nil {
		return err
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back to the pool
	if _, err := conn.ExecContext(ctx, "BEGIN; SELECT name FROM bench_locks WHERE name = ? FOR UPDATE", key); err != nil {
		return err
	}
	err = f(ctx)
	_, released := conn.ExecContext(cleanUp, "COMMIT")
	return errors.Join(err, released)
}

func (l *mysqlRow) Close() error { return l.db.Close() }
