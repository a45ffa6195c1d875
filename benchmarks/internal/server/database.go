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
func (s *Server) open(ctx context.Context, driver, dsn string, before ...string) {
	db, err := sql.Open(driver, dsn)
	s.must(err)
	s.db = db
	s.scope.Cleanup(func() { _ = db.Close() })
	s.must(s.exec(ctx, append(before, "CREATE TABLE bench_locks (name VARCHAR(100) PRIMARY KEY)",
		"CREATE TABLE bench_rows (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
		"INSERT INTO bench_rows VALUES "+values(Rows, func(i int) string { return fmt.Sprintf("(%d, 0)", i) }))...))
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

// Product is the only one for sale.
const Product = "1000"

// Stock is more than any round sells: a half is in the product's row, and a half in its shelves, for shops that split it.
const Stock = 2 * Shelves * eachShelf

// Shelves is how many rows a split stock has.
const (
	Shelves   = 16
	eachShelf = 1 << 36
)

// Shelf returns the product of one of the shelves.
func Shelf(n int) string { return fmt.Sprintf("%s/%d", Product, n) }

// OpenShop begins a new sale in a database. An order's id numbers them as they were written.
func (s *Server) OpenShop(ctx context.Context) error {
	orderID := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	if strings.HasPrefix(s.Addr, "sqlite:") {
		orderID = "INTEGER PRIMARY KEY"
	}
	return s.exec(ctx, "DROP TABLE IF EXISTS bench_orders", "DROP TABLE IF EXISTS bench_stock",
		"CREATE TABLE bench_stock (product VARCHAR(20) PRIMARY KEY, qty BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
		"CREATE TABLE bench_orders (id "+orderID+", product VARCHAR(20) NOT NULL, buyer BIGINT NOT NULL, fence BIGINT NOT NULL)",
		fmt.Sprintf("INSERT INTO bench_stock (product, qty) VALUES ('%s', %d), %s", Product, Stock/2,
			values(Shelves, func(n int) string { return fmt.Sprintf("('%s', %d)", Shelf(n), eachShelf) })))
}

// Books are what the database says of a sale.
type Books struct {
	Sold   int64 `json:"sold"`   // orders
	Left   int64 `json:"left"`   // pieces in stock
	Fenced int64 `json:"fenced"` // orders with a fence
	Fallen int64 `json:"fallen"` // those whose fence is below that of the order before
}

// Audit reads the books.
func (s *Server) Audit(ctx context.Context) (b Books, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COUNT(*), (SELECT CAST(SUM(qty) AS BIGINT) FROM bench_stock),
		COALESCE(SUM(CASE WHEN fence > 0 THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN fence < previous THEN 1 ELSE 0 END), 0)
		FROM (SELECT fence, LAG(fence) OVER (ORDER BY id) AS previous FROM bench_orders) AS sale`).Scan(&b.Sold, &b.Left, &b.Fenced, &b.Fallen)
	return b, err
}
