package sqlshop

import (
	"cmp"
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
)

const writeStock = `UPDATE flashsale_stock SET qty = ? WHERE id = ?`

// ReadThenWrite is how most shops sell: read the stock, think, write the stock less one. Every statement is correct, and so is
// the transaction, but two orders that read the same stock sell the same piece twice.
func (s *Shop) ReadThenWrite(ctx context.Context, product, buyer string) error {
	row, err := s.readAndThink(ctx, product)
	if err != nil {
		return err
	}
	return s.repeat(ctx, func(tx *transaction) error {
		if err := tx.change(nil, writeStock, row.qty-1, product); err != nil { // another may have written the same
			return err
		}
		return tx.addOrders(product, 0, buyer)
	})
}

// Optimistic writes only if nobody has written since it read, by a version column, and begins again otherwise.
func (s *Shop) Optimistic(ctx context.Context, product, buyer string) error {
	return s.retry(ctx, func() error {
		row, err := s.readAndThink(ctx, product)
		if err != nil {
			return err
		}
		return s.whole(ctx, func(tx *transaction) error {
			const write = `UPDATE flashsale_stock SET qty = ?, version = version + 1 WHERE id = ? AND version = ?`
			if err := tx.change(errConflict, write, row.qty-1, product, row.version); err != nil {
				return err
			}
			return tx.addOrders(product, 0, buyer)
		})
	})
}

// Pessimistic locks the row while it reads it, and keeps it locked until it has written: others wait in the database, each
// with a connection. On SQLite the transaction locks the whole file.
func (s *Shop) Pessimistic(ctx context.Context, product, buyer string) error {
	return s.repeat(ctx, func(tx *transaction) error {
		row, err := tx.readForUpdate(product)
		if row, err = s.considered(tx.ctx, row, err); err != nil {
			return err
		}
		if err := tx.change(errConflict, writeStock, row.qty-1, product); err != nil {
			return err
		}
		return tx.addOrders(product, 0, buyer)
	})
}

// OneStatement lets the database decide within the statement that writes. It thinks before, so it cannot think about the
// stock that it takes.
func (s *Shop) OneStatement(ctx context.Context, product, buyer string) error {
	if err := s.think(ctx); err != nil {
		return err
	}
	return s.repeat(ctx, func(tx *transaction) error {
		if err := tx.change(ErrSoldOut, `UPDATE flashsale_stock SET qty = qty - 1 WHERE id = ? AND qty > 0`, product); err != nil {
			return err
		}
		return tx.addOrders(product, 0, buyer)
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
	if row, err = s.considered(ctx, row, err); err != nil {
		return 0, err
	}
	sold = int(min(row.qty, int64(len(buyers))))
	err = s.retry(ctx, func() error {
		return s.inTx(ctx, s.db.BeginTx, func(tx *transaction) error {
			err := tx.change(ErrStaleFence, writeStock+` AND fence = ?`, row.qty-int64(sold), product, int64(fence))
			if err != nil {
				return err
			}
			return tx.addOrders(product, int64(fence), buyers[:sold]...)
		})
	})
	if err != nil {
		return 0, err
	}
	return sold, nil
}

// row is what orders read of a product.
type row struct{ qty, version int64 }

const selectStock = `SELECT qty, version FROM flashsale_stock WHERE id = ?`

// Look reads a product as its page does, over the same connections as the orders. It does not count as a statement of theirs.
func (s *Shop) Look(ctx context.Context, product string) error {
	return s.db.QueryRowContext(ctx, s.dialect.sql(selectStock), product).Scan(new(int64), new(int64))
}

func (s *Shop) read(ctx context.Context, product string) (r row, err error) {
	err = s.retry(ctx, func() error {
		return s.connected(ctx, func(ctx context.Context, conn *sql.Conn) error {
			s.Statements.Add(1)
			return conn.QueryRowContext(ctx, s.dialect.sql(selectStock), product).Scan(&r.qty, &r.version)
		})
	})
	return r, err
}

// considered ends a read of an order: nothing left is its answer; otherwise it thinks.
func (s *Shop) considered(ctx context.Context, r row, err error) (row, error) {
	switch {
	case err == nil && r.qty <= 0:
		err = ErrSoldOut
	case err == nil:
		err = s.think(ctx)
	}
	return r, err
}

func (s *Shop) readAndThink(ctx context.Context, product string) (row, error) {
	r, err := s.read(ctx, product)
	return s.considered(ctx, r, err)
}

func (tx *transaction) readForUpdate(product string) (r row, err error) {
	tx.shop.Statements.Add(1)
	err = tx.QueryRowContext(tx.ctx, tx.shop.dialect.sql(selectStock+tx.shop.dialect.forUpdate), product).Scan(&r.qty, &r.version)
	return r, err
}

const claimStock = `UPDATE flashsale_stock SET fence = ? WHERE id = ? AND fence < ?`

// claim excludes every holder of a lower fence and reads the stock: in one statement where the database can do that. In two
// statements the read finds a row only if the claim still stands. No row would also mean that there is no such product, which its
// callers exclude.
func (s *Shop) claim(ctx context.Context, product string, fence int64) (r row, err error) {
	err = s.retry(ctx, func() error {
		s.Statements.Add(1)
		if s.dialect.returning {
			return s.db.QueryRowContext(ctx, s.dialect.sql(claimStock+` RETURNING qty, version`), fence, product, fence).Scan(&r.qty, &r.version)
		}
		done, err := s.db.ExecContext(ctx, claimStock, fence, product, fence)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return cmp.Or(err, sql.ErrNoRows)
		}
		s.Statements.Add(1)
		return s.db.QueryRowContext(ctx, s.dialect.sql(selectStock+` AND fence = ?`), product, fence).Scan(&r.qty, &r.version)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrStaleFence
	}
	return r, err
}

// addOrders writes all orders in one statement.
func (tx *transaction) addOrders(product string, fence int64, buyers ...string) error {
	args := make([]any, 0, 3*len(buyers))
	for _, buyer := range buyers {
		args = append(args, product, buyer, fence)
	}
	rows := strings.Repeat(", (?, ?, ?)", len(buyers))[len(", "):]
	return tx.change(nil, `INSERT INTO flashsale_orders (product, buyer, fence) VALUES `+rows, args...)
}
