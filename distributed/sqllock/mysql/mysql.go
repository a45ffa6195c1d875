// Package mysql opens a sqllock.Backend on MySQL or MariaDB, with the driver github.com/go-sql-driver/mysql.
//
//	err := mysql.Migrate(ctx, "mysql://user@host/database")   // once
//	backend, err := mysql.Open("mysql://user@host/database")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A program that already has a *sql.DB passes it to sqllock.New instead. Open such a DB with interpolateParams=true. Otherwise every
// statement is prepared first, which takes one more round trip.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/tlsfile"
)

const (
	// idleTime is how long a connection that nobody uses stays open: waiting and holding need none.
	idleTime = 30 * time.Second
	// connections is as many as a Backend uses at a time by default, so that none is opened in vain.
	connections = sqllock.DefaultParallel + sqllock.BackgroundConnections
	// lifetime is how long a connection is used at most: the name of the server may lead to another one meanwhile.
	lifetime = 5 * time.Minute
	// dialTime bounds the making of a connection, unless the URL has a timeout.
	dialTime    = 2 * time.Second
	defaultPort = "3306"
)

// sessions are the settings that a lock relies on, whatever the server or the URL say: a statement by itself is committed, and ends
// there; names are stored as they are; no policy of the server refuses a statement, cuts off its answer or changes what it means.
var sessions = map[string]string{
	"autocommit": "1", "completion_type": "0", "character_set_client": "utf8mb4", "character_set_connection": "utf8mb4",
	"sql_safe_updates": "0", "sql_select_limit": "18446744073709551615", "sql_big_selects": "1", "sql_mode": "'STRICT_TRANS_TABLES'",
	// MariaDB reads the first comment, and MySQL the second: they have other names for the same.
	"unique_checks": "1 /*M! , max_statement_time=0, tx_read_only=0 *//*!80003 , max_execution_time=0, transaction_read_only=0 */",
}

// bounds are what Open adds, in seconds, unless the URL says otherwise: how long a statement waits for a row that somebody keeps
// locked, for meanwhile each further try takes a connection; and how long the server keeps a session of a host that has vanished, a
// little longer than the pool keeps one that is idle.
var bounds = map[string]string{"innodb_lock_wait_timeout": "1", "wait_timeout": "40"}

// Open returns a Backend on the database that a URL names:
//
//	mysql://user[:password]@host[:port]/database[?tls=true&timeout=5s]
//
// The parameters are those of the driver's DSN. tls_ca, tls_cert and tls_key name PEM files: the certificate authorities of the server
// (default: those of the system), a client certificate and its key, which are read for each connection. tls_server_name is the name that the
// server's certificate must have, instead of the host. Each of them means tls=true. password-file names a file with the password, one line of
// UTF-8, which is read for each connection.
//
// Open changes the settings of its sessions as locks need them: docs/sql.md lists these settings. It does not connect. The tables must
// exist: see Migrate.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	c, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	all := append([]sqllock.Option{sqllock.WithOwnedDB(), sqllock.WithSchema(c.config.DBName)}, opts...)
	return sqllock.New(c.bounded().open(), sqllock.MySQL, all...)
}

// Opener returns Open with these options, for config.WithOpener.
func Opener(opts ...sqllock.Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
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
func parse(rawURL string) (*connector, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "mysql" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errURL
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	c := &connector{log: new(driverLog)}
	if c.files, u.RawQuery, err = tlsfile.Take(u.RawQuery, "mysql", true); err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	query, err := c.takePasswordFile(u)
	if err != nil {
		return nil, err
	}
	dsn := "tcp(" + addr + ")/" // the name that a certificate has to have is taken from here
	if query != "" {
		dsn += "?" + query
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.Addr != addr {
		return nil, errURL
	}
	if c.files != (tlsfile.Files{}) && config.TLSConfig != "" && config.TLSConfig != "true" {
		return nil, errors.New("mysql: the parameters of TLS want tls=true, or none")
	}
	config.DBName = strings.Trim(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true // without it every statement is prepared first: a round trip more
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	maps.Copy(config.Params, sessions)
	if config.Timeout == 0 {
		config.Timeout = dialTime
	}
	c.config = config
	return c, nil
}

// OpenDB opens a database as Open does, for a program that also uses it for other things. Its statements wait for rows as long as the server
// allows, which Open bounds.
func OpenDB(rawURL string) (*sql.DB, error) {
	c, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return c.open(), nil
}
