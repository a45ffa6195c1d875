package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

// Schema is what the recipes keep in PostgreSQL.
const Schema = `
CREATE TABLE stock (
	id  TEXT PRIMARY KEY,
	qty BIGINT NOT NULL
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
	balance BIGINT NOT NULL
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
CREATE TABLE jobs (
	id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	customer TEXT NOT NULL,
	what     TEXT NOT NULL
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
)

// Shop sells from PostgreSQL.
type Shop struct {
	Locker *wllock.Locker
	Fences *fenced.Guard // of a database/sql pool. pgx has stdlib.OpenDBFromPool
}

// Order is for one piece. Its id is the customer's: two customers may choose the same.
type Order struct{ Customer, ID, Product string }

// Sell sells one piece and returns how many are left. The same order is sold once, however often tried.
func (s *Shop) Sell(ctx context.Context, o Order) (left int64, err error) {
	if o.Customer == "" || o.ID == "" { // it would be one order for all that lack them
		return 0, ErrNoOrder
	}
	err = s.Locker.Do(ctx, "product", o.Product, func(ctx context.Context) error { // the lock first
		return s.Fences.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) { // it commits
			left, err = sell(ctx, tx, o)
			return err
		})
	}, wllock.WithWait(2*time.Second))
	return left, err
}

func sell(ctx context.Context, tx *sql.Tx, o Order) (left int64, err error) {
	var product string
	err = tx.QueryRowContext(ctx, `SELECT product, remain FROM orders WHERE customer = $1 AND id = $2`,
		o.Customer, o.ID).Scan(&product, &left)
	switch {
	case err == nil && product != o.Product:
		return 0, ErrOther
	case !errors.Is(err, sql.ErrNoRows):
		return left, err // a repeat: the same answer
	}
	err = tx.QueryRowContext(ctx, `SELECT qty FROM stock WHERE id = $1`, o.Product).Scan(&left)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w: %q", ErrNoProduct, o.Product)
	case err == nil && left == 0:
		err = ErrSoldOut
	}
	if err != nil {
		return 0, err
	}
	left--
	_, err = tx.ExecContext(ctx, `UPDATE stock SET qty = $1 WHERE id = $2`, left, o.Product)
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO orders (customer, id, product, remain) VALUES ($1, $2, $3, $4)`,
			o.Customer, o.ID, o.Product, left)
	}
	return left, err
}
