package sqlshop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
)

var (
	// ErrSoldOut is an answer, not a failure: nothing was left.
	ErrSoldOut = errors.New("sold out")
	// ErrStaleFence stops an order whose lock was lost: a caller with a higher fence has been admitted since.
	ErrStaleFence = errors.New("stale fence: a later caller was admitted")
	// ErrContended is the answer to a buyer whose order met others each time it was tried.
	ErrContended = errors.New("too many others order the same")
)

// ReadThenWrite is how most shops sell: read the stock, think, write the stock less one. Every statement is correct, and so is
// the transaction, but two orders that read the same stock sell the same piece twice.
func (s *Shop) ReadThenWrite(ctx context.Context, product, buyer string) error {
	row, err := s.read(ctx, product)
	if err != nil {
		return err
	}
	if err := s.think(ctx); err != nil {
		return err
	}
	return s.repeat(ctx, func(tx *transaction) error {
		err := orElse(tx.change(`UPDATE flashsale_stock SET qty = ? WHERE id = ?`, row.qty-1, product), nil) // another may have written the same
		if err != nil {
			return err
		}
		return tx.addOrder(product, buyer, 0)
	})
}

// Optimistic writes only if nobody has written since it read, by a version column, and begins again otherwise.
func (s *Shop) Optimistic(ctx context.Context, product, buyer string) error {
	return s.retry(ctx, func() error {
		row, err := s.read(ctx, product)
		if err != nil {
			return err
		}
		if err := s.think(ctx); err != nil {
			return err
		}
		return s.whole(ctx, func(tx *transaction) error {
			err := tx.change(`UPDATE flashsale_stock SET qty = ?, version = version + 1 WHERE id = ? AND version = ?`,
				row.qty-1, product, row.version)
			if err != nil {
				return orElse(err, errConflict)
			}
			return tx.addOrder(product, buyer, 0)
		})
	})
}

// Pessimistic locks the row while it reads it, and keeps it locked until it has written: others wait in the database, each
// with a connection. On SQLite the transaction locks the whole file.
func (s *Shop) Pessimistic(ctx context.Context, product, buyer string) error {
	return s.repeat(ctx, func(tx *transaction) error {
		row, err := tx.readForUpdate(product)
		if err != nil {
			return err
		}
		if err := s.think(tx.ctx); err != nil {
			return err
		}
		if err := tx.change(`UPDATE flashsale_stock SET qty = ? WHERE id = ?`, row.qty-1, product); err != nil {
			return err
		}
		return tx.addOrder(product, buyer, 0)
	})
}

// OneStatement lets the database decide within the statement that writes. It thinks before, so it cannot think about the
// stock that it takes.
func (s *Shop) OneStatement(ctx context.Context, product, buyer string) error {
	if err := s.think(ctx); err != nil {
		return err
	}
	return s.repeat(ctx, func(tx *transaction) error {
		if err := tx.change(`UPDATE flashsale_stock SET qty = qty - 1 WHERE id = ? AND qty > 0`, product); err != nil {
			return orElse(err, ErrSoldOut)
		}
		return tx.addOrder(product, buyer, 0)
	})
}

// OrderFenced is ReadThenWrite for a caller that holds a lock with a fence: a batch of one.
func (s *Shop) OrderFenced(ctx context.Context, product, buyer string, fence uint64) error {
	_, err := s.BatchFenced(ctx, product, []string{buyer}, fence)
	return err
}

// row is what orders read of a product.
type row struct{ qty, version int64 }

func (r row) orSoldOut(err error) (row, error) {
	if err == nil && r.qty <= 0 {
		err = ErrSoldOut
	}
	return r, err
}

const selectStock = `SELECT qty, version FROM flashsale_stock WHERE id = ?`

// Look reads a product as its page does, over the same connections as the orders. It does not count as a statement of theirs.
func (s *Shop) Look(ctx context.Context, product string) error {
	return s.db.QueryRowContext(ctx, s.dialect.sql(selectStock), product).Scan(new(int64), new(int64))
}

func (s *Shop) read(ctx context.Context, product string) (r row, err error) {
	err = s.retry(ctx, func() error {
		return s.connected(ctx, func(ctx context.Context, conn *sql.Conn) error {
			s.statements.Add(1)
			return conn.QueryRowContext(ctx, s.dialect.sql(selectStock), product).Scan(&r.qty, &r.version)
		})
	})
	return r.orSoldOut(err)
}

func (tx *transaction) readForUpdate(product string) (r row, err error) {
	tx.shop.statements.Add(1)
	err = tx.QueryRowContext(tx.ctx, tx.shop.dialect.sql(selectStock+tx.shop.dialect.forUpdate), product).Scan(&r.qty, &r.version)
	return r.orSoldOut(err)
}

const claimStock = `UPDATE flashsale_stock SET fence = ? WHERE id = ? AND fence < ?`

// claim excludes every holder of a lower fence and reads the stock: in one statement where the database can do that. In two
// statements the read finds a row only if the claim still stands. No row would also mean that there is no such product, which its
// callers exclude.
func (s *Shop) claim(ctx context.Context, product string, fence int64) (r row, err error) {
	err = s.retry(ctx, func() error {
		s.statements.Add(1)
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
		s.statements.Add(1)
		return s.db.QueryRowContext(ctx, s.dialect.sql(selectStock+` AND fence = ?`), product, fence).Scan(&r.qty, &r.version)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, ErrStaleFence
	}
	return r.orSoldOut(err)
}
