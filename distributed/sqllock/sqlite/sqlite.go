// Package sqlite opens a sqllock.Backend on a file of SQLite, for the processes of one machine, with the driver modernc.org/sqlite,
// which needs no C.
//
//	backend, err := sqlite.Open("sqlite:///var/lib/shop/locks.db")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// The file must be on a disk of this machine: network file systems do not lock.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/openurl"
)

const (
	// idleTime is how long a connection that nobody uses stays open.
	idleTime = 30 * time.Second
	// connections: one writes at a time, and the others read.
	connections = 4
)

// Open returns a Backend on the file that a URL names: sqlite:///absolute/path or sqlite:relative/path. Open does not touch the file. The first
// use of the Backend creates the file and the tables if they are missing. If the file is removed or replaced, its locks are gone: their holders
// lose them at their next look or renewal. With ?mode=ro after the path the Backend inspects locks, and changes nothing on the disk.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	tables, err := sqllock.DDL(sqllock.SQLite, opts...)
	if err != nil {
		return nil, err
	}
	db, err := openDB(rawURL, tables)
	if err != nil {
		return nil, err
	}
	return sqllock.New(db, sqllock.SQLite, append([]sqllock.Option{sqllock.WithOwnedDB()}, opts...)...)
}

// Opener returns Open with these options, for config.WithOpener.
func Opener(opts ...sqllock.Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}

// Migrate creates the file and the tables if they are missing, before their first use: see sqllock.Migrate.
func Migrate(ctx context.Context, rawURL string, opts ...sqllock.Option) (err error) {
	db, err := OpenDB(rawURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqllock.Migrate(ctx, db, sqllock.SQLite, opts...)
}

// Check returns an error if this process could not keep locks in the file that a URL names, or would not exclude processes that reach the file
// by another path. It returns nil if the file does not exist yet, but could be created. It opens nothing. A Backend runs the same check first.
func Check(rawURL string) error {
	c, err := connectorOf(rawURL)
	if err == nil {
		if err = c.check(); err != nil {
			err = fmt.Errorf("%s: %w", c.path, err)
		}
	}
	return err
}

var errURL = errors.New("sqlite: not the URL of a file: want sqlite:///absolute/path or sqlite:relative/path, and nothing behind it but ?mode=ro")

// connectorOf reads the URL of a file.
func connectorOf(rawURL string) (c connector, err error) {
	const readsOnly = "mode=ro"
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "sqlite" || u.Host != "" || u.User != nil || u.RawQuery != "" && u.RawQuery != readsOnly || u.Fragment != "" {
		return c, errURL
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return c, errURL
		}
	}
	if path == "" || path == "/" {
		return c, errURL
	}
	c.reads = u.RawQuery == readsOnly
	c.path, err = filepath.Abs(path) // it stays the same file when the process goes to another directory
	return c, err
}

// OpenDB opens a file as Open does, for a program that also uses it for other things. It creates no tables: see Migrate.
func OpenDB(rawURL string) (*sql.DB, error) { return openDB(rawURL, nil) }

func openDB(rawURL string, tables []string) (*sql.DB, error) {
	c, err := connectorOf(rawURL)
	if err != nil {
		return nil, err
	}
	if !c.reads {
		c.tables = tables
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	return db, nil
}
