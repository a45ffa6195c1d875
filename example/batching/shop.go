// Package batching has recipes for batch guards over a database: an order with "sold out" for one buyer, the same on pgx with a statement
// for each order but no round trip, and two ways to keep one bad order from failing its batch, by halves and by savepoints.
// docs/batching.md says what each costs.
package batching

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/wllock/wllock"
)

// Order is what a buyer asks for. The database refuses an amount below 1.
type Order struct {
	Product, Buyer string
	Amount         int
}

// Item is one order of a batch; the result is the number of the order.
type Item = wllock.Item[Order, int]

// Answers of the shop.
var (
	ErrSoldOut   = errors.New("sold out")
	ErrNoProduct = errors.New("no such product")
	ErrOvertaken = errors.New("a later holder of the lock has claimed the product")
)

// Schema is in SQLite's words; PostgreSQL takes it, too.
const Schema = `
CREATE TABLE stock (product TEXT PRIMARY KEY, qty BIGINT NOT NULL, next BIGINT NOT NULL DEFAULT 1, fence BIGINT NOT NULL DEFAULT 0);
CREATE TABLE orders (product TEXT NOT NULL, number BIGINT NOT NULL, buyer TEXT NOT NULL, amount INT NOT NULL CHECK (amount > 0),
	PRIMARY KEY (product, number));`

// Shop sells from a database.
type Shop struct{ DB *sql.DB }

// Batch sells to all buyers of a batch in one transaction: two statements for the stock and one for the orders, however many there are.
// One bad order fails them all.
func (s *Shop) Batch(ctx context.Context, batch []*Item) error {
	_, err := s.transaction(ctx, batch, insertAll)
	return err
}

// transaction sells in one transaction. rolledBack: it is known that nothing of it is left, so another try does nothing twice; after a
// COMMIT that failed, nobody knows.
func (s *Shop) transaction(ctx context.Context, batch []*Item, insert func(context.Context, *sql.Tx, []*Item) error) (rolledBack bool, err error) {
	tx, err := s.DB.BeginTx(ctx, nil) // a lost lock rolls back
	if err != nil {
		return true, err
	}
	if err := sell(ctx, tx, batch, insert); err != nil {
		return tx.Rollback() == nil, err
	}
	return false, tx.Commit()
}

// sell claims the product, gives out its pieces, and writes the orders. Items that get none have an error of their own. Numbers of orders
// that fail are not given out again.
func sell(ctx context.Context, tx *sql.Tx, batch []*Item, insert func(context.Context, *sql.Tx, []*Item) error) error {
	held, _ := wllock.HeldFrom(ctx)
	product := batch[0].Arg.Product // the guard's key, so it is the same for all
	var left, next int
	// Equal fences are this very hold's, which makes several transactions if it goes by halves.
	err := tx.QueryRowContext(ctx, `UPDATE stock SET fence = $1 WHERE product = $2 AND fence <= $1 RETURNING qty, next`,
		held.Fence(), product).Scan(&left, &next)
	if errors.Is(err, sql.ErrNoRows) {
		return noRow(ctx, tx, product)
	}
	if err != nil {
		return err
	}
	sold, left, next := giveOut(batch, left, next)
	if len(sold) == 0 {
		return nil
	}
	if err := insert(ctx, tx, sold); err != nil {
		return err
	}
	for _, item := range sold {
		if item.Err != nil { // taken back by insert
			left += item.Arg.Amount
		}
	}
	_, err = tx.ExecContext(ctx, `UPDATE stock SET qty = $1, next = $2 WHERE product = $3`, left, next, product)
	return err
}

// noRow returns why the claim got no row.
func noRow(ctx context.Context, tx *sql.Tx, product string) error {
	var last int64
	err := tx.QueryRowContext(ctx, `SELECT fence FROM stock WHERE product = $1`, product).Scan(&last)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNoProduct
	case err != nil:
		return err
	}
	return ErrOvertaken
}

// giveOut numbers the orders that get their pieces, in the order of their arrival. The others have an error of their own.
func giveOut(batch []*Item, stock, number int) (sold []*Item, left, next int) {
	left, next = stock, number
	for _, item := range batch {
		item.Result, item.Err = 0, nil // of an earlier try
		if item.Arg.Amount > left {
			item.Err = ErrSoldOut
			continue
		}
		item.Result = next
		next++
		left -= item.Arg.Amount
		sold = append(sold, item)
	}
	return sold, left, next
}

// insertAll writes all orders in one statement.
func insertAll(ctx context.Context, tx *sql.Tx, sold []*Item) error {
	rows, args := make([]string, 0, len(sold)), make([]any, 0, 4*len(sold))
	for i, item := range sold {
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, $%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4))
		args = append(args, item.Arg.Product, item.Result, item.Arg.Buyer, item.Arg.Amount)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO orders (product, number, buyer, amount) VALUES `+strings.Join(rows, ", "), args...)
	return err
}
