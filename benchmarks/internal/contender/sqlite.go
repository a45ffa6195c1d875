package contender

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

const sqliteModule = "modernc.org/sqlite"

// sqlites are for the processes of one machine. Nothing is counted: there is no server.
func sqlites() []Contender {
	return append(longer(ours("wllock", defaults, nil, overSQLite), overSQLite), Contender{
		Name:     "IMMEDIATE",
		Settings: "BEGIN IMMEDIATE and COMMIT: the write lock of the whole file, for any key; busy_timeout 60 s, a connection for every holder or waiter",
		Module:   sqliteModule,
		Open: func(o Options) (Instance, error) {
			db, err := openSQLite(o)
			if err != nil {
				return nil, err
			}
			return writeLock{db}, nil
		},
		Role: Rival,
	}, Contender{
		Name:     "flock",
		Settings: "flock(2) of a file per key, opened for each call; knows no context and takes a thread for every waiter",
		Open:     func(o Options) (Instance, error) { return openFlock(o) },
		Role:     Rival,
	}, plain(sqliteModule, nil, func(o Options) (execer, error) {
		db, err := openSQLite(o)
		return sqlPool{db}, err
	}))
}

func openSQLite(o Options) (*sql.DB, error) { return opened("sqlite", server.SQLiteDSN(o.Addr), o) }

// writeLock is a transaction that writes nothing.
type writeLock struct{ db *sql.DB }

func (l writeLock) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	tx, err := l.db.BeginTx(ctx, nil) // immediate, by the DSN
	if err != nil {
		return err
	}
	return errors.Join(f(ctx), tx.Commit())
}

func (l writeLock) Close() error { return l.db.Close() }

// fileLock locks files beside the database.
type fileLock struct{ dir string }

func openFlock(o Options) (Instance, error) {
	return fileLock{filepath.Dir(strings.TrimPrefix(o.Addr, "sqlite://"))}, nil
}

func (l fileLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	file, err := os.OpenFile(filepath.Join(l.dir, url.PathEscape(key)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // which unlocks
	for {
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); {
		case err == nil:
			return f(ctx)
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
}

func (l fileLock) Close() error { return nil }
