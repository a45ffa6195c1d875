package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Create makes both tables anew, and all that was in them is lost.
func (s *Shop) Create(ctx context.Context) error {
	if err := s.execAll(ctx, `DROP TABLE IF EXISTS flashsale_orders`, `DROP TABLE IF EXISTS flashsale_stock`); err != nil {
		return err
	}
	return s.createMissing(ctx)
}

func (s *Shop) createMissing(ctx context.Context) error {
	return s.execAll(ctx,
		`CREATE TABLE IF NOT EXISTS flashsale_stock (id VARCHAR(64) PRIMARY KEY, qty BIGINT NOT NULL,
			version BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0)`,
		`CREATE TABLE IF NOT EXISTS flashsale_orders (id `+s.dialect.orderID+`, product VARCHAR(64) NOT NULL,
			buyer VARCHAR(64) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
}

func (s *Shop) execAll(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		_, err := s.db.ExecContext(ctx, statement)
		if err != nil { // on PostgreSQL also when another server has just created what IF NOT EXISTS did not see: now it does
			_, err = s.db.ExecContext(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("create the shop's tables: %w", err)
		}
	}
	return nil
}

const fillStock = `INSERT INTO flashsale_stock (id, qty) VALUES (?, ?)`

// Join joins a sale that other servers may have opened: what is missing is created, and the stock is filled if the product
// is new. It returns the stock. Servers that begin together all do all of it: each step may find that another was first.
func (s *Shop) Join(ctx context.Context, product string, qty int) (left int64, err error) {
	if err := s.createMissing(ctx); err != nil {
		return 0, err
	}
	_, filled := s.db.ExecContext(ctx, s.dialect.sql(fillStock), product, qty)
	r, err := s.read(ctx, product)
	if errors.Is(err, sql.ErrNoRows) {
		err = filled
	}
	return r.qty, err
}

// Stock fills the stock of a product for a new sale, and forgets the sale before.
func (s *Shop) Stock(ctx context.Context, product string, qty int) error {
	return s.whole(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(
			s.change(ctx, tx, nil, `DELETE FROM flashsale_orders WHERE product = ?`, product),
			s.change(ctx, tx, nil, `DELETE FROM flashsale_stock WHERE id = ?`, product),
			s.change(ctx, tx, nil, fillStock, product, qty))
	})
}

// Audit is the state of the database after a sale.
type Audit struct {
	Sold       int // rows in orders
	Left       int // pieces in stock
	OutOfOrder int // orders whose fence is not above that of the order before
	Fallen     int // those whose fence is below it: orders of a batch have the same
}

// Audit counts the orders and the remaining stock of a product.
func (s *Shop) Audit(ctx context.Context, product string) (a Audit, err error) {
	err = s.db.QueryRowContext(ctx, s.dialect.sql(`
		SELECT COUNT(*), COALESCE(SUM(CASE WHEN fence <= COALESCE(previous, 0) THEN 1 ELSE 0 END), 0),
			COALESCE(SUM(CASE WHEN fence < COALESCE(previous, 0) THEN 1 ELSE 0 END), 0), (SELECT qty FROM flashsale_stock WHERE id = ?)
		FROM (SELECT fence, LAG(fence) OVER (ORDER BY id) AS previous FROM flashsale_orders WHERE product = ?) AS sale`),
		product, product).Scan(&a.Sold, &a.OutOfOrder, &a.Fallen, &a.Left)
	return a, err
}
