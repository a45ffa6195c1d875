package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Schema is what the recipes keep in PostgreSQL.
const Schema = `
CREATE TABLE stock (
	id    TEXT PRIMARY KEY,
	qty   BIGINT NOT NULL,
	fence BIGINT NOT NULL DEFAULT 0 -- of the last holder of the lock that has claimed the row
);
CREATE TABLE orders (
	customer TEXT NOT NULL,
	id       TEXT NOT NULL,   -- chosen by the customer, the same in every try
	product  TEXT NOT NULL REFERENCES stock (id),
	remain   BIGINT NOT NULL, -- the answer that the customer got
	PRIMARY KEY (customer, id)
);
CREATE TABLE accounts (
	id      TEXT PRIMARY KEY,
	balance BIGINT NOT NULL,
	fence   BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE answers (
	customer TEXT NOT NULL,
	key      TEXT NOT NULL,  -- the customer's Idempotency-Key
	request  BYTEA NOT NULL, -- what it belongs to
	status   INT NOT NULL,
	body     BYTEA NOT NULL,
	PRIMARY KEY (customer, key)
);
CREATE TABLE events (id TEXT PRIMARY KEY);
CREATE TABLE customers (
	id    TEXT PRIMARY KEY,
	fence BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE jobs (
	id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	customer TEXT NOT NULL REFERENCES customers (id),
	what     TEXT NOT NULL
);
CREATE TABLE leaders (
	id    TEXT PRIMARY KEY,
	fence BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE outbox (
	id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	mail TEXT NOT NULL
);`

// Answers of the shop.
var (
	ErrSoldOut   = errors.New("sold out")
	ErrNoProduct = errors.New("no such product")
	ErrNoOrder   = errors.New("an order needs a customer and an id")
	ErrOther     = errors.New("this id belongs to an order of another product")
	ErrOvertaken = errors.New("a later holder of the lock has claimed the row")
)

// Shop sells from PostgreSQL.
type Shop struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
}

// Order is for one piece. Its id is the customer's: two customers may choose the same.
type Order struct{ Customer, ID, Product string }

// Sell sells one piece and returns how many are left. The same order is sold once, however often tried.
func (s *Shop) Sell(ctx context.Context, o Order) (left int64, err error) {
	if o.Customer == "" || o.ID == "" { // it would be one order for all that lack them
		return 0, ErrNoOrder
	}
	err = s.Locker.Do(ctx, "product", o.Product, func(ctx context.Context) error { // the lock first
		held, _ := wllock.HeldFrom(ctx)
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) (err error) { // commits, then the release
			left, err = sell(ctx, tx, o, int64(held.Fence()))
			return err
		})
	}, wllock.WithWait(2*time.Second))
	return left, err
}

func sell(ctx context.Context, tx pgx.Tx, o Order, fence int64) (left int64, err error) {
	qty, err := claim(ctx, tx, o.Product, fence) // the first statement
	if err != nil {
		return 0, err
	}
	var product string
	err = tx.QueryRow(ctx, `SELECT product, remain FROM orders WHERE customer = $1 AND id = $2`,
		o.Customer, o.ID).Scan(&product, &left)
	switch {
	case err == nil && product != o.Product:
		return 0, ErrOther
	case !errors.Is(err, pgx.ErrNoRows):
		return left, err // a repeat: the same answer
	case qty == 0:
		return 0, ErrSoldOut
	}
	done, err := tx.Exec(ctx, // this, and every later write
		`UPDATE stock SET qty = $1 WHERE id = $2 AND fence = $3`, qty-1, o.Product, fence)
	if err == nil && done.RowsAffected() == 0 {
		err = ErrOvertaken
	}
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO orders (customer, id, product, remain) VALUES ($1, $2, $3, $4)`,
		o.Customer, o.ID, o.Product, qty-1)
	return qty - 1, err
}

// claim reads the row and excludes every holder of a lower fence.
func claim(ctx context.Context, tx pgx.Tx, product string, fence int64) (qty int64, err error) {
	err = tx.QueryRow(ctx,
		`UPDATE stock SET fence = $1 WHERE id = $2 AND fence < $1 RETURNING qty`,
		fence, product).Scan(&qty)
	if !errors.Is(err, pgx.ErrNoRows) {
		return qty, err
	}
	var last int64 // no row: which of the two is it?
	switch err := tx.QueryRow(ctx, `SELECT fence FROM stock WHERE id = $1`, product).Scan(&last); {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("%w: %q", ErrNoProduct, product)
	case err != nil:
		return 0, err
	}
	return 0, fmt.Errorf("%w: it has fence %d, this one %d", ErrOvertaken, last, fence)
}
