// Package sqlshop is the shop of the flash sale on a database that is already there: SQLite, MariaDB, MySQL or PostgreSQL.
// It has five ways not to oversell, and the one that does: order.go has a function for each. A visit goes this way:
//
//	buyer ─▶ connection from the pool ─▶ read ─▶ think ─▶ write the stock and the order, in one transaction ─▶ answer
//	          (patience ends here)                         (repeated after a deadlock or a conflict, a bounded number of times)
//
// Everything that differs between the databases is in dialect.go. SQLite's driver comes with the package; those of servers are the
// program's, which imports github.com/go-sql-driver/mysql and github.com/jackc/pgx/v5/stdlib.
package sqlshop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// Allowed lists the URLs that Open knows.
const Allowed = "sqlite (a temporary file), FILE, sqlite:FILE or sqlite:///FILE, mysql://user:password@host:port/database (MariaDB, too), " +
	"postgres://user:password@host:port/database"

// Temporary is the URL of a file in a directory of its own, which Close removes.
const Temporary = "sqlite"

// Shop is the shop of one process.
type Shop struct {
	URL        string       // of the database, for others; that of a temporary file is of this one
	Statements atomic.Int64 // that orders have sent, BEGIN and COMMIT included
	db         *sql.DB
	dialect    *dialect
	pool       int
	dir        string // of a temporary file
	think      func(context.Context) error
}

// Open opens the shop with a pool of connections. think is what an order does between reading the stock and writing it: a price,
// a voucher, a fraud check. Nothing is sent before the first use.
func Open(url string, pool int, think func(context.Context) error) (s *Shop, err error) {
	s = &Shop{URL: url, pool: pool, think: think}
	if url == Temporary {
		if s.dir, err = os.MkdirTemp("", "flashsale-"); err != nil {
			return nil, err
		}
		s.URL = "sqlite:" + filepath.Join(s.dir, "shop.db")
	}
	if s.dialect, s.db, err = parse(s.URL); err != nil {
		return nil, fmt.Errorf("%w; allowed: %s", err, Allowed)
	}
	s.db.SetMaxOpenConns(pool)
	s.db.SetMaxIdleConns(pool) // so that no order pays for a connection
	return s, nil
}

// Close closes the connections, and removes what is temporary. Others that have it open do no harm: the file is gone when they close it.
func (s *Shop) Close() {
	_ = s.db.Close() // what was not committed is rolled back
	_ = os.RemoveAll(s.dir)
}

// Connect opens the whole pool, so that a sale does not begin with it.
func (s *Shop) Connect(ctx context.Context) error {
	for range s.pool {
		c, err := s.db.Conn(ctx)
		if err == nil {
			defer func() { _ = c.Close() }() // back into the pool
			err = c.PingContext(ctx)
		}
		if err != nil {
			return fmt.Errorf("connect to %s: %w", s.dialect.name, err)
		}
	}
	return nil
}

// Check says what is wrong with a URL, as far as that can be seen without a connection. Its error shows no password.
func Check(url string) error {
	s, err := Open(url, 1, nil)
	if err == nil {
		s.Close()
	}
	return err
}

// parse returns the dialect of a URL, and its database, which is opened when it is used.
func parse(name string) (*dialect, *sql.DB, error) {
	scheme, _, _ := strings.Cut(name, ":")
	d := dialects[strings.Replace(scheme, "postgresql", "postgres", 1)]
	switch {
	case d == nil || scheme != "sqlite" && !strings.Contains(name, "://"):
		return nil, nil, errors.New("no database of this kind")
	case !slices.Contains(sql.Drivers(), d.driver): // which the program links
		return nil, nil, fmt.Errorf("this program has no driver for %s://, go run ./example/flashsale/full has", scheme)
	}
	dsn, err := d.dsn(name)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open(d.driver, dsn)
	return d, db, err
}

// File returns the file that a URL of SQLite names.
func File(name string) (file string, ok bool) {
	scheme, file, _ := strings.Cut(name, ":")
	if path, ok := strings.CutPrefix(file, "//"); ok && strings.HasPrefix(path, "/") {
		file = path
	}
	return file, scheme == "sqlite" && file != "" && !strings.HasPrefix(file, "//")
}

// busyMillis is how long SQLite itself polls for the file while another process writes. After that the shop tries again, with
// jitter, for as long as the buyer waits.
const busyMillis = "1000"

func sqliteDSN(name string) (string, error) {
	file, ok := File(name)
	if !ok {
		return "", errors.New("sqlite needs a file")
	}
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + url.Values{
		"_busy_timeout": {busyMillis},
		"_journal_mode": {"WAL"}, // readers and the writer do not wait for each other
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"}, // a transaction that would have to upgrade from reader to writer fails at once
	}.Encode(), nil
}

func postgresDSN(name string) (string, error) {
	if _, err := url.Parse(name); err != nil {
		return "", errors.New("this is no URL") // url.Error shows the password
	}
	return name, nil
}

// mysqlDSN reads mysql://user:password@host:port/database?parameters, with the parameters of the driver.
func mysqlDSN(name string) (string, error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", errors.New("this is no URL")
	}
	database := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || database == "" {
		return "", errors.New("mysql:// needs a host and a database")
	}
	password, _ := u.User.Password()
	query := u.Query()
	query.Set("interpolateParams", "true") // one exchange per statement instead of two; safe with utf8mb4, the driver's default
	return u.User.Username() + ":" + password + "@tcp(" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")) + ")/" + url.PathEscape(database) + "?" + query.Encode(), nil
}

// Tables is what the shop has in a database, for messages: without user, password and parameters of the URL.
func Tables(name string) string {
	if u, err := url.Parse(name); err == nil && u.Host != "" {
		name = u.Scheme + "://" + u.Host + u.Path
	}
	return "flashsale_stock and flashsale_orders in " + name
}
