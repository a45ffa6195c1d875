// Package postgres opens a sqllock.Backend on PostgreSQL, with the driver github.com/jackc/pgx/v5, and has the Notifier that makes
// hand-overs a push.
//
//	err := postgres.Migrate(ctx, "postgres://user@host/database")   // once
//	backend, err := postgres.Open("postgres://user@host/database")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A program that has a *sql.DB already passes that to sqllock.New instead, of any driver.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/identity"
)

const (
	// idleTime is how long a connection that nobody uses stays open: waiting and holding need none.
	idleTime = 30 * time.Second
	// connections is as many as a Backend uses at a time by default, so that none is opened in vain.
	connections = sqllock.DefaultParallel + sqllock.BackgroundConnections
	// dialTime bounds the making of a connection, unless the URL has a connect_timeout.
	dialTime = 2 * time.Second
	// lifetime is how long a connection is used at most: the name of the server may lead to another one meanwhile.
	lifetime = 5 * time.Minute
)

// Open returns a Backend on the database that a URL names, with hand-overs pushed by a Notifier:
//
//	postgres://user[:password]@host[:port]/database[?sslmode=...&connect_timeout=...]
//
// or postgresql://, and everything else that pgx.ParseConfig understands, so the PG* environment variables and a password file apply, which is read for each
// connection. Open sets the sessions as a lock needs them: docs/sql.md lists what. Connections have the id of the process for an
// application_name, unless the URL or PGAPPNAME says otherwise. Open does not connect. The tables have to be there: see Migrate.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	all := append([]sqllock.Option{sqllock.WithOwnedDB(), sqllock.WithNotifier(notifier{t})}, opts...)
	db := openDB(t)
	b, err := sqllock.New(db, sqllock.PostgreSQL, all...)
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

// Migrate creates the tables that are missing: see sqllock.Migrate.
func Migrate(ctx context.Context, rawURL string, opts ...sqllock.Option) (err error) {
	t, err := parse(rawURL)
	if err != nil {
		return err
	}
	db := openDB(t)
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqllock.Migrate(ctx, db, sqllock.PostgreSQL, opts...)
}

// OpenDB opens a database as Open does, for a program that uses it for other things as well.
func OpenDB(rawURL string) (*sql.DB, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return openDB(t), nil
}

// target is where to connect to, and as whom.
type target struct {
	*pgx.ConnConfig
	url string
}

// parse reads a URL. The error does not show the password.
func parse(rawURL string) (t target, err error) {
	config, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return t, errors.New("postgres: not the URL of a database: want postgres://user:password@host:port/database, with / ? # and @ in " +
			"a password percent-encoded")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = dialTime
	}
	if config.RuntimeParams["application_name"] == "" { // neither the URL nor PGAPPNAME names it
		config.RuntimeParams["application_name"] = identity.Process("")
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // whatever the role's is: names are UTF-8
	return target{config, rawURL}, nil
}

// logIn puts the password of now into the settings of one connection: its file may have changed.
func (t target) logIn(config *pgx.ConnConfig) {
	if fresh, err := pgx.ParseConfig(t.url); err == nil {
		config.Password = fresh.Password
	}
}

func openDB(t target) *sql.DB {
	db := sql.OpenDB(newConnector(t))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return db
}
