// Package sqlite opens a sqllock.Backend on a file of SQLite, for the processes of one machine, with the driver modernc.org/sqlite,
// which needs no C.
//
//	err := sqlite.Migrate(ctx, "sqlite:///var/lib/shop/locks.db")   // once
//	backend, err := sqlite.Open("sqlite:///var/lib/shop/locks.db")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// The file has to be on a disk of this machine: network file systems do not lock.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
)

const (
	// idleTime is how long a connection that nobody uses stays open.
	idleTime = 30 * time.Second
	// connections: one writes at a time, and the others read.
	connections = 4
	// pragmas: with a write-ahead log readers and the writer do not wait for each other. Its last changes may be lost with the
	// power, but then all who relied on them have gone as well, and fences go on with the clock. A writer waits for another one in
	// SQLite first, which takes less than to be refused and come again.
	pragmas = "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(100)"
)

// Open returns a Backend on the file that a URL names: sqlite:///absolute/path or sqlite:relative/path. Open does not touch it. The
// tables have to be there: see Migrate.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	db, err := OpenDB(rawURL)
	if err != nil {
		return nil, err
	}
	b, err := sqllock.New(db, sqllock.SQLite, append([]sqllock.Option{sqllock.WithOwnedDB()}, opts...)...)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

// Opener returns an Open for config.WithOpener.
func Opener(opts ...sqllock.Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return func(_ context.Context, u *url.URL) (distributed.Backend, error) {
		b, err := Open(u.String(), opts...)
		if err != nil {
			return nil, err // not a nil *Backend in an interface
		}
		return b, nil
	}
}

// Migrate creates the file and the tables if they are missing: see sqllock.Migrate.
func Migrate(ctx context.Context, rawURL string, opts ...sqllock.Option) (err error) {
	db, err := OpenDB(rawURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqllock.Migrate(ctx, db, sqllock.SQLite, opts...)
}

var errURL = errors.New("sqlite: not the URL of a file: want sqlite:///absolute/path or sqlite:relative/path")

// dsn returns what the driver calls the file.
func dsn(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "sqlite" || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errURL
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", errURL
		}
	}
	if path == "" || path == "/" {
		return "", errURL
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: pragmas}).String(), nil
}

// OpenDB opens a file as Open does, for a program that uses it for other things as well.
func OpenDB(rawURL string) (*sql.DB, error) {
	name, err := dsn(rawURL)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector(name))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	return db, nil
}
