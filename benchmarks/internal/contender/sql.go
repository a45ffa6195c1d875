package contender

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// statements is what is counted of a database: all that clients send.
var statements = []string{"statement"}

// opened returns a pool with a connection for every holder or waiter, all open, and none closed before the end.
func opened(driver, dsn string, o Options) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(o.Workers)
	db.SetMaxIdleConns(o.Workers)
	err = connectAll(o.Workers, func(ctx context.Context) (func(), error) {
		conn, err := db.Conn(ctx)
		return func() { _ = conn.Close() }, err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connectAll takes n connections out of a pool at a time, so that all are open, and gives them back.
func connectAll(n int, acquire func(ctx context.Context) (giveBack func(), err error)) error {
	var errs []error
	for range n {
		giveBack, err := acquire(context.Background())
		if err != nil {
			errs = append(errs, err)
			break
		}
		defer giveBack()
	}
	return errors.Join(errs...)
}

// plain writes a row per call and locks nothing: what a statement costs whose effect the database keeps.
func plain(module string, commands []string, open func(Options) (execer, error)) Contender {
	return Contender{
		Name:     "UPDATE",
		Settings: "one plain UPDATE by the primary key per call, each of another row; no lock",
		Module:   module,
		Commands: commands,
		Open: func(o Options) (Instance, error) {
			db, err := open(o)
			if err != nil {
				return nil, err
			}
			return updater{db}, nil
		},
		Role: Limit,
	}
}

// execer is a pool of connections.
type execer interface {
	exec(ctx context.Context, statement string) error
	Close() error
}

type updater struct{ execer }

// updates chooses the rows, so that no two callers write the same one at a time.
var updates atomic.Int64

func (u updater) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	if err := u.exec(ctx, fmt.Sprintf("UPDATE bench_rows SET n = n + 1 WHERE id = %d", updates.Add(1)%server.Rows)); err != nil {
		return err
	}
	return f(ctx)
}

// sqlPool is an execer of database/sql.
type sqlPool struct{ *sql.DB }

func (p sqlPool) exec(ctx context.Context, statement string) error {
	_, err := p.ExecContext(ctx, statement)
	return err
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
