package server

import (
	"context"
	"fmt"
	"strings"
)

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
