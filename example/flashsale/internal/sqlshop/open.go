// Package sqlshop is the shop of the flash sale on a database that is already there: SQLite, MariaDB, MySQL or PostgreSQL.
// It has five ways not to oversell, and the one that does: order.go has a function for each. A visit goes this way:
//
//	buyer ─▶ connection from the pool ─▶ read ─▶ think ─▶ write the stock and the order, in one transaction ─▶ answer
//	          (patience ends here)                         (repeated after a deadlock or a conflict, a bounded number of times)
//
// Everything that differs between the databases is in dialect.go. SQLite comes with the package; a program adds others to Servers.
package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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

// Servers open the databases of servers that the program links, by the schemes of their URLs.
var Servers = map[string]func(url string) (*sql.DB, error){}

// parse returns the dialect of a URL, and its database, which is opened when it is used.
func parse(name string) (d *dialect, db *sql.DB, err error) {
	scheme, _, _ := strings.Cut(name, ":")
	scheme = strings.Replace(scheme, "postgresql", "postgres", 1)
	switch d = dialects[scheme]; {
	case d == nil || scheme != "sqlite" && !strings.Contains(name, "://"):
		err = errors.New("no database of this kind")
	case scheme == "sqlite":
		db, err = openFile(name)
	case Servers[scheme] == nil:
		err = fmt.Errorf("this program has no driver for %s://, go run ./example/flashsale/full has", scheme)
	default:
		db, err = Servers[scheme](name)
	}
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

func openFile(name string) (*sql.DB, error) {
	file, ok := File(name)
	if !ok {
		return nil, errors.New("sqlite needs a file")
	}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+url.Values{
		"_busy_timeout": {"1000"}, // ms for which SQLite itself asks for the file; then the shop does, with jitter, while the buyer waits
		"_journal_mode": {"WAL"},  // readers and the writer do not wait for each other
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"}, // a transaction that would have to upgrade from reader to writer fails at once
	}.Encode())
}

// Tables is what the shop has in a database, for messages: without user, password and parameters of the URL.
func Tables(name string) string {
	if u, err := url.Parse(name); err == nil && u.Host != "" {
		name = u.Scheme + "://" + u.Host + u.Path
	}
	return "flashsale_stock and flashsale_orders in " + name
}
