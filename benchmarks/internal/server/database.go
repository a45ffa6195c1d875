package server

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // pgx
	_ "modernc.org/sqlite"             // sqlite
)

// MySQLDSN returns what the driver calls the database of a mysql:// URL. Parameters are put into the statements, which saves
// a round trip each.
func MySQLDSN(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return "", err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.InterpolateParams = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username(), true
	c.Passwd, _ = u.User.Password()
	return c.FormatDSN(), nil
}

// SQLiteDSN returns what the driver calls the file of a sqlite:// URL: with a write-ahead log, and transactions that take the write
// lock at their beginning and wait for it.
func SQLiteDSN(addr string) string {
	return "file:" + strings.TrimPrefix(addr, "sqlite://") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(60000)&_txlock=immediate"
}

// DurableSQLiteDSN is one whose commits are on the disk when they return.
func DurableSQLiteDSN(addr string) string {
	return strings.Replace(SQLiteDSN(addr), "synchronous(NORMAL)", "synchronous(FULL)", 1)
}

// Rows is how many rows there are to be written.
const Rows = 1024

// open connects to the database, and creates what is compared: a row per lock, and rows to be written.
func (s *Server) open(ctx context.Context, driver, dsn string, before ...string) (err error) {
	if s.db, err = sql.Open(driver, dsn); err != nil {
		return err
	}
	s.scope.Cleanup(func() { _ = s.db.Close() })
	return s.exec(ctx, append(before, "CREATE TABLE bench_locks (name VARCHAR(100) PRIMARY KEY)",
		"CREATE TABLE bench_rows (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
		"INSERT INTO bench_rows VALUES "+values(Rows, func(i int) string { return fmt.Sprintf("(%d, 0)", i) }))...)
}

func (s *Server) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("set up the database: %w", err)
		}
	}
	return nil
}

// values are n rows to insert.
func values(n int, row func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = row(i)
	}
	return strings.Join(all, ", ")
}
