package contender

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// execer is a pool with a connection for every holder or waiter, all open, and none closed before the end.
type execer interface {
	exec(ctx context.Context, statement string) error
	Close() error
}

// sqlPool is an execer of database/sql.
type sqlPool struct{ *sql.DB }

func (p sqlPool) exec(ctx context.Context, statement string) error {
	_, err := p.ExecContext(ctx, statement)
	return err
}

func opened(driver, dsn string, o Options) (sqlPool, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return sqlPool{}, err
	}
	db.SetMaxOpenConns(o.Workers)
	db.SetMaxIdleConns(o.Workers)
	err = connectAll(o.Workers, func(ctx context.Context) (func(), error) {
		conn, err := db.Conn(ctx)
		return func() { _ = conn.Close() }, err
	})
	if err != nil {
		return sqlPool{}, errors.Join(err, db.Close())
	}
	return sqlPool{db}, nil
}

// connectAll takes n connections out of a pool at a time, so that all are open, and gives them back.
func connectAll(n int, acquire func(ctx context.Context) (giveBack func(), err error)) error {
	for range n {
		giveBack, err := acquire(context.Background())
		if err != nil {
			return err
		}
		defer giveBack()
	}
	return nil
}

func openMariaDB(o Options) (sqlPool, error) {
	dsn, err := server.MySQLDSN(o.Addr)
	if err != nil {
		return sqlPool{}, err
	}
	return opened("mysql", dsn+"&multiStatements=true", o)
}

func openSQLite(o Options) (sqlPool, error) { return opened("sqlite", server.SQLiteDSN(o.Addr), o) }

// pgPool is an execer over pgx itself, which is faster than through database/sql.
type pgPool struct{ pool *pgxpool.Pool }

func openPostgres(o Options) (*pgPool, error) {
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
	err = connectAll(o.Workers, func(ctx context.Context) (func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &pgPool{pool}, nil
}

func (p *pgPool) exec(ctx context.Context, statement string) error {
	_, err := p.pool.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	return err
}

func (p *pgPool) Close() error {
	p.pool.Close()
	return nil
}

// updated chooses the rows, so that no two callers write the same one at a time.
var updated atomic.Int64

// updates writes a row per call and locks nothing: what a statement costs whose effect the database keeps.
func updates[E execer](open func(Options) (E, error)) []entry {
	return []entry{{"UPDATE", "one plain UPDATE by the primary key per call, each of another row; no lock", func(o Options) (Instance, error) {
		db, err := open(o)
		if err != nil {
			return nil, err
		}
		return limit(func(ctx context.Context) error {
			return db.exec(ctx, fmt.Sprintf("UPDATE bench_rows SET n = n + 1 WHERE id = %d", updated.Add(1)%server.Rows))
		}, db.Close), nil
	}}}
}

// rows are those of bench_locks that an instance has created, before it locks them for the first time.
type rows struct{ known sync.Map }

func (r *rows) ensure(key string, insert func() error) error {
	if _, known := r.known.Load(key); known {
		return nil
	}
	err := insert()
	if err == nil {
		r.known.Store(key, true)
	}
	return err
}

// pgLock is one way to lock in PostgreSQL: statements with %d for a number that stands for the key.
func pgLock(name, settings, take, release string) entry {
	return entry{name, settings + "; a connection for every holder or waiter", func(o Options) (Instance, error) {
		db, err := openPostgres(o)
		if err != nil {
			return nil, err
		}
		known, needsRow := new(rows), strings.Contains(take, "bench_locks")
		return lock{func(ctx context.Context, key string) (func() error, error) {
			h := fnv.New64a()
			_, _ = h.Write([]byte(key))
			number := fmt.Sprint(int64(h.Sum64()))
			if needsRow {
				if err := known.ensure(key, func() error {
					return db.exec(ctx, "INSERT INTO bench_locks VALUES ('"+number+"') ON CONFLICT DO NOTHING")
				}); err != nil {
					return nil, err
				}
			}
			conn, err := db.pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, strings.ReplaceAll(take, "%d", number), pgx.QueryExecModeSimpleProtocol); err != nil {
				conn.Release()
				return nil, err
			}
			return func() error {
				defer conn.Release()
				_, err := conn.Exec(cleanUp, strings.ReplaceAll(release, "%d", number), pgx.QueryExecModeSimpleProtocol)
				return err
			}, nil
		}, db.Close}, nil
	}}
}

// onConn is a lock that belongs to a connection of MariaDB.
func onConn(db sqlPool, take func(ctx context.Context, conn *sql.Conn, key string) error, release string) lock {
	return lock{func(ctx context.Context, key string) (func() error, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if err := take(ctx, conn, key); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return func() error {
			defer func() { _ = conn.Close() }() // back to the pool
			_, err := conn.ExecContext(cleanUp, strings.ReplaceAll(release, "%s", key))
			return err
		}, nil
	}, db.Close}
}

// openGetLock opens MySQL's lock by name. It asks again every second, because the server does not notice that a waiter's connection was
// closed.
func openGetLock(o Options) (Instance, error) {
	db, err := openMariaDB(o)
	return onConn(db, func(ctx context.Context, conn *sql.Conn, key string) error {
		for locked := false; !locked; {
			if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", key).Scan(&locked); err != nil {
				return err
			}
		}
		return nil
	}, "DO RELEASE_LOCK('%s')"), err
}

// openMySQLRow locks a row for a transaction.
func openMySQLRow(o Options) (Instance, error) {
	db, err := openMariaDB(o)
	known := new(rows)
	return onConn(db, func(ctx context.Context, conn *sql.Conn, key string) error {
		if err := known.ensure(key, func() error {
			_, err := conn.ExecContext(ctx, "INSERT IGNORE INTO bench_locks VALUES (?)", key)
			return err
		}); err != nil {
			return err
		}
		_, err := conn.ExecContext(ctx, "BEGIN; SELECT name FROM bench_locks WHERE name = ? FOR UPDATE", key)
		return err
	}, "COMMIT"), err
}

// openImmediate locks by a transaction that writes nothing.
func openImmediate(o Options) (Instance, error) {
	db, err := openSQLite(o)
	return lock{func(ctx context.Context, _ string) (func() error, error) {
		tx, err := db.BeginTx(ctx, nil) // immediate, by the DSN
		if err != nil {
			return nil, err
		}
		return tx.Commit, nil
	}, db.Close}, err
}

// openFlock locks files beside the database.
func openFlock(o Options) (Instance, error) {
	dir := filepath.Dir(strings.TrimPrefix(o.Addr, "sqlite://"))
	return lock{func(_ context.Context, key string) (func() error, error) {
		file, err := os.OpenFile(filepath.Join(dir, url.PathEscape(key)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); {
			case err == nil:
				return file.Close, nil // which unlocks
			case !errors.Is(err, syscall.EINTR):
				return nil, errors.Join(err, file.Close())
			}
		}
	}, nothing}, nil
}
