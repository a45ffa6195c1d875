// Package mysql opens a sqllock.Backend on MySQL or MariaDB, with the driver github.com/go-sql-driver/mysql.
//
//	err := mysql.Migrate(ctx, "mysql://user@host/database")   // once
//	backend, err := mysql.Open("mysql://user@host/database")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A program that has a *sql.DB already passes that to sqllock.New instead. It should be opened with interpolateParams=true: else every
// statement is prepared first, which is a round trip more.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
)

const (
	// idleTime is how long a connection that nobody uses stays open: waiting and holding need none.
	idleTime = 30 * time.Second
	// connections is as many as a Backend uses at a time by default, so that none is opened in vain.
	connections = sqllock.DefaultParallel + sqllock.BackgroundConnections
	// dialTime bounds the making of a connection, unless the URL has a timeout.
	dialTime    = 5 * time.Second
	defaultPort = "3306"
)

// Open returns a Backend on the database that a URL names:
//
//	mysql://user[:password]@host[:port]/database[?tls=true&timeout=5s]
//
// with the parameters of the driver's DSN. Open does not connect. The tables have to be there: see Migrate.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	db, err := OpenDB(rawURL)
	if err != nil {
		return nil, err
	}
	b, err := sqllock.New(db, sqllock.MySQL, append([]sqllock.Option{sqllock.WithOwnedDB()}, opts...)...)
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
	db, err := OpenDB(rawURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqllock.Migrate(ctx, db, sqllock.MySQL, opts...)
}

// errURL does not show the URL, which may contain a password.
var errURL = errors.New("mysql: not the URL of a database: want mysql://user:password@host:port/database, with / ? # and @ in a password " +
	"percent-encoded")

// parse reads a URL.
func parse(rawURL string) (*mysql.Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "mysql" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errURL
	}
	dsn := "/"
	if u.RawQuery != "" {
		dsn += "?" + u.RawQuery
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errURL
	}
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true // without it every statement is prepared first: a round trip more
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	config.Params["autocommit"] = "1" // whatever the server's default is
	if config.Timeout == 0 {
		config.Timeout = dialTime
	}
	return config, nil
}

// OpenDB opens a database as Open does, for a program that uses it for other things as well.
func OpenDB(rawURL string) (*sql.DB, error) {
	config, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errURL
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	return db, nil
}
