package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

var (
	// ErrSoldOut is an answer, not a failure: nothing was left.
	ErrSoldOut = errors.New("sold out")
	// ErrStaleFence stops an order whose lock was lost: a caller with a higher fence has been admitted since.
	ErrStaleFence = errors.New("stale fence: a later caller was admitted")
	// ErrContended is the answer to a buyer whose order met others each time it was tried.
	ErrContended = errors.New("too many others order the same")
	errConflict  = errors.New("the stock has changed since it was read")
)

const (
	selectStock = `SELECT qty, version FROM flashsale_stock WHERE id = ?`
	writeStock  = `UPDATE flashsale_stock SET qty = ? WHERE id = ?`
	claimStock  = `UPDATE flashsale_stock SET fence = ? WHERE id = ? AND fence < ?`
)

// ReadThenWrite is how most shops sell: read the stock, think, write the stock less one. Every statement is correct, and so is
// the transaction, but two orders that read the same stock sell the same piece twice.
func (s *Shop) ReadThenWrite(ctx context.Context, product, buyer string) error {
	row, err := s.readAndThink(ctx, product)
	if err != nil {
		return err
	}
	return s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.sell(ctx, tx, order{product, 0, []string{buyer}}, nil, writeStock, row.qty-1, product) // another may have written the same
	})
}

// Optimistic writes only if nobody has written since it read, by a version column, and begins again otherwise.
func (s *Shop) Optimistic(ctx context.Context, product, buyer string) error {
	const write = `UPDATE flashsale_stock SET qty = ?, version = version + 1 WHERE id = ? AND version = ?`
	return s.retry(ctx, func() error {
		row, err := s.readAndThink(ctx, product)
		if err != nil {
			return err
		}
		return s.whole(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return s.sell(ctx, tx, order{product, 0, []string{buyer}}, errConflict, write, row.qty-1, product, row.version)
		})
	})
}

// Pessimistic locks the row while it reads it, and keeps it locked until it has written: others wait in the database, each
// with a connection. On SQLite the transaction locks the whole file.
func (s *Shop) Pessimistic(ctx context.Context, product, buyer string) error {
	return s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := s.ask(ctx, tx, selectStock+s.dialect.forUpdate, product)
		if err = s.considered(ctx, row, err); err != nil {
			return err
		}
		return s.sell(ctx, tx, order{product, 0, []string{buyer}}, errConflict, writeStock, row.qty-1, product)
	})
}

// OneStatement lets the database decide within the statement that writes. It thinks before, so it cannot think about the
// stock that it takes.
func (s *Shop) OneStatement(ctx context.Context, product, buyer string) error {
	const take = `UPDATE flashsale_stock SET qty = qty - 1 WHERE id = ? AND qty > 0`
	if err := s.think(ctx); err != nil {
		return err
	}
	return s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.sell(ctx, tx, order{product, 0, []string{buyer}}, ErrSoldOut, take, product)
	})
}

// OrderFenced is ReadThenWrite for a caller that holds a lock with a fence: a batch of one.
func (s *Shop) OrderFenced(ctx context.Context, product, buyer string, fence uint64) error {
	_, err := s.BatchFenced(ctx, product, []string{buyer}, fence)
	return err
}

// BatchFenced sells to many buyers under one lock and one fence: one claim, one thought and one transaction serve all of them. It returns
// how many have bought, first come, first served; nothing was left for the others. After an error none has.
//
// Its first statement claims the stock for the fence, and its transaction writes only if the claim still stands, so a holder that was
// paused past the end of its lease changes nothing. A check in the transaction alone is not enough, because two orders may have read the
// same stock by then. The transaction ends with the lock's context.
func (s *Shop) BatchFenced(ctx context.Context, product string, buyers []string, fence uint64) (sold int, err error) {
	row, err := s.claim(ctx, product, int64(fence))
	if err = s.considered(ctx, row, err); err != nil {
		return 0, err
	}
	sold = int(min(row.qty, int64(len(buyers))))
	bought, left := order{product, int64(fence), buyers[:sold]}, row.qty-int64(sold)
	if err := s.retry(ctx, func() error {
		return s.inTx(ctx, s.db.BeginTx, func(ctx context.Context, tx *sql.Tx) error {
			return s.sell(ctx, tx, bought, ErrStaleFence, writeStock+` AND fence = ?`, left, product, int64(fence))
		})
	}); err != nil {
		return 0, err
	}
	return sold, nil
}

// Look reads a product as its page does, over the same connections as the orders. It does not count as a statement of theirs.
func (s *Shop) Look(ctx context.Context, product string) error {
	return s.db.QueryRowContext(ctx, s.dialect.sql(selectStock), product).Scan(new(int64), new(int64))
}

func (s *Shop) read(ctx context.Context, product string) (r row, err error) {
	err = s.retry(ctx, func() error {
		return s.connected(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
			r, err = s.ask(ctx, conn, selectStock, product)
			return err
		})
	})
	return r, err
}

// considered ends a read of an order: nothing left is its answer; otherwise it thinks.
func (s *Shop) considered(ctx context.Context, r row, err error) error {
	switch {
	case err != nil:
		return err
	case r.qty <= 0:
		return ErrSoldOut
	}
	return s.think(ctx)
}

func (s *Shop) readAndThink(ctx context.Context, product string) (row, error) {
	r, err := s.read(ctx, product)
	return r, s.considered(ctx, r, err)
}

// claim excludes every holder of a lower fence and reads the stock: in one statement where the database can do that. In two
// statements the read finds a row only if the claim still stands. No row would also mean that there is no such product, which its
// callers exclude.
func (s *Shop) claim(ctx context.Context, product string, fence int64) (r row, err error) {
	err = s.retry(ctx, func() (err error) {
		if s.dialect.returning {
			r, err = s.ask(ctx, s.db, claimStock+` RETURNING qty, version`, fence, product, fence)
			return err
		}
		if err = s.change(ctx, s.db, sql.ErrNoRows, claimStock, fence, product, fence); err == nil {
			r, err = s.ask(ctx, s.db, selectStock+` AND fence = ?`, product, fence)
		}
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrStaleFence
	}
	return r, err
}

// order is what buyers have bought; without a lock its fence is 0.
type order struct {
	product string
	fence   int64
	buyers  []string
}

// sell writes all orders in one statement, after one that takes the pieces from the stock. If that changes no row, the error is otherwise.
func (s *Shop) sell(ctx context.Context, tx *sql.Tx, o order, otherwise error, take string, args ...any) error {
	if err := s.change(ctx, tx, otherwise, take, args...); err != nil {
		return err
	}
	rows := make([]any, 0, 3*len(o.buyers))
	for _, buyer := range o.buyers {
		rows = append(rows, o.product, buyer, o.fence)
	}
	values := strings.Repeat(", (?, ?, ?)", len(o.buyers))[len(", "):]
	return s.change(ctx, tx, nil, `INSERT INTO flashsale_orders (product, buyer, fence) VALUES `+values, rows...)
}
