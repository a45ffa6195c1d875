package batching

import (
	"context"
	"database/sql"
	"errors"
)

// Halves sells like Batch, but a transaction that fails and was rolled back is tried again in halves, until the bad orders are alone.
// Without a bad order it costs nothing more. Each transaction answers for its own items.
func (s *Shop) Halves(ctx context.Context, batch []*Item) error {
	rolledBack, err := s.transaction(ctx, batch, insertAll)
	half := len(batch) / 2
	switch {
	case err == nil:
		return nil
	case half == 0, !rolledBack, ctx.Err() != nil, errors.Is(err, ErrOvertaken), errors.Is(err, ErrNoProduct): // nothing to gain from smaller ones
		for _, item := range batch {
			item.Result, item.Err = 0, err
		}
		return nil
	}
	return errors.Join(s.Halves(ctx, batch[:half]), s.Halves(ctx, batch[half:]))
}

// Savepoints sells like Batch, but with a savepoint and an INSERT for each order: a bad one is undone alone. It costs three statements
// for each order, bad or not.
func (s *Shop) Savepoints(ctx context.Context, batch []*Item) error {
	_, err := s.transaction(ctx, batch, insertEach)
	return err
}

// insertEach writes the orders one by one.
func insertEach(ctx context.Context, tx *sql.Tx, sold []*Item) error {
	for _, item := range sold {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT item`); err != nil {
			return err
		}
		after := `RELEASE SAVEPOINT item`
		if item.Err = insertAll(ctx, tx, []*Item{item}); item.Err != nil {
			item.Result, after = 0, `ROLLBACK TO SAVEPOINT item`
		}
		if _, err := tx.ExecContext(ctx, after); err != nil {
			return err
		}
	}
	return nil
}
