package sqlshop

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// Allowed lists the URLs that Open knows.
const Allowed = "sqlite (a temporary file), FILE, sqlite:FILE or sqlite:///FILE, mysql://user:password@host:port/database (MariaDB, too), " +
	"postgres://user:password@host:port/database"

// Shop is the shop of one process.
type Shop struct {
	db         *sql.DB
	dialect    *dialect
	pool       int
	local      bool // the server, if there is one, may run on this machine
	think      func(context.Context) error
	statements atomic.Int64
}

// Open opens the shop with a pool of connections. think is what an order does between reading the stock and writing it: a price,
// a voucher, a fraud check. Nothing is sent before the first use.
func Open(url string, pool int, think func(context.Context) error) (*Shop, error) {
	d, err := dialectOf(url)
	if err != nil {
		return nil, err
	}
	connector, err := d.connector(url)
	if err != nil {
		return nil, fmt.Errorf("%w; allowed: %s", err, Allowed)
	}
	s := &Shop{dialect: d, pool: pool, think: think, local: onThisMachine(url)}
	s.db = sql.OpenDB(counting{connector, &s.statements})
	s.db.SetMaxOpenConns(pool)
	s.db.SetMaxIdleConns(pool) // so that no order pays for a connection
	return s, nil
}

// Close closes the connections.
func (s *Shop) Close() { _ = s.db.Close() } // what was not committed is rolled back

// Name is the database's, for people.
func (s *Shop) Name() string { return s.dialect.name }

// Statements is how many the shop has sent, BEGIN and COMMIT included.
func (s *Shop) Statements() int64 { return s.statements.Load() }

// Connect opens the whole pool, so that a sale does not begin with it.
func (s *Shop) Connect(ctx context.Context) error {
	open := make([]*sql.Conn, 0, s.pool)
	defer func() {
		for _, c := range open {
			_ = c.Close() // back into the pool
		}
	}()
	for range s.pool {
		c, err := s.db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", s.dialect.name, err)
		}
		open = append(open, c)
		if err := c.PingContext(ctx); err != nil {
			return fmt.Errorf("connect to %s: %w", s.dialect.name, err)
		}
	}
	return nil
}

// Check says what is wrong with a URL, as far as that can be seen without a connection. Its error shows no password.
func Check(url string) error {
	d, err := dialectOf(url)
	if err != nil {
		return err
	}
	if _, err = d.connector(url); err != nil {
		return fmt.Errorf("%w; allowed: %s", err, Allowed)
	}
	return nil
}

func dialectOf(url string) (*dialect, error) {
	scheme, _, _ := strings.Cut(url, ":")
	if scheme == "postgresql" {
		scheme = "postgres"
	}
	if d := dialects[scheme]; d != nil && (scheme == "sqlite" || strings.Contains(url, "://")) {
		return d, nil
	}
	return nil, fmt.Errorf("allowed: %s", Allowed)
}

// busyMillis is how long SQLite itself polls for the file while another process writes. After that the shop tries again, with
// jitter, for as long as the buyer waits.
const busyMillis = "1000"

// File returns the file that a URL of SQLite names.
func File(name string) (file string, ok bool) {
	scheme, file, _ := strings.Cut(name, ":")
	if path, ok := strings.CutPrefix(file, "//"); ok && strings.HasPrefix(path, "/") {
		file = path
	}
	return file, scheme == "sqlite" && file != "" && !strings.HasPrefix(file, "//")
}

func sqliteConnector(name string) (driver.Connector, error) {
	file, ok := File(name)
	if !ok {
		return nil, errors.New("sqlite needs a file")
	}
	return sqlite.NewConnector("file:" + (&url.URL{Path: file}).EscapedPath() + "?" + url.Values{
		"_busy_timeout": {busyMillis},
		"_journal_mode": {"WAL"}, // readers and the writer do not wait for each other
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"}, // a transaction that would have to upgrade from reader to writer fails at once
	}.Encode())
}

func postgresConnector(name string) (driver.Connector, error) {
	c, err := pgx.ParseConfig(name) // hides the password in its errors
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*c), nil
}

// mysqlConnector reads mysql://user:password@host:port/database?parameters, with the parameters of the driver.
func mysqlConnector(name string) (driver.Connector, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errors.New("this is no URL") // url.Error shows the password
	}
	c, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	c.User, c.Net, c.DBName = u.User.Username(), "tcp", strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.Addr = net.JoinHostPort(u.Hostname(), defaultTo(u.Port(), "3306"))
	c.InterpolateParams = true // one exchange per statement instead of two; safe with utf8mb4, the driver's default
	if u.Hostname() == "" || c.DBName == "" {
		return nil, errors.New("mysql:// needs a host and a database")
	}
	return mysql.NewConnector(c)
}

func defaultTo(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// onThisMachine reports whether the URL's host is this machine, by its loopback interface or by a socket file.
func onThisMachine(name string) bool {
	u, err := url.Parse(name)
	return err == nil && (slices.Contains([]string{"", "localhost"}, u.Hostname()) || net.ParseIP(u.Hostname()).IsLoopback())
}

// Shown is the URL without user, password and parameters, for messages.
func Shown(name string) string {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return name
	}
	return u.Scheme + "://" + u.Host + u.Path
}
