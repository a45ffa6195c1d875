package batching

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Pipelined sells from PostgreSQL. Each order keeps a statement of its own, as in code that sells one by one, but all of a batch go to
// the server together: what an item costs is then its statement, and no round trip.
type Pipelined struct{ Pool *pgxpool.Pool }

// Batch sells to all buyers of a batch in four round trips: BEGIN, the claim, all orders with the stock, COMMIT. One bad order fails
// them all.
func (s *Pipelined) Batch(ctx context.Context, batch []*Item) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error { // a lost lock rolls back
		product := batch[0].Arg.Product // the guard's key, so it is the same for all
		left, next, err := claim(ctx, tx, product)
		if err != nil {
			return err
		}
		sold, left, next := giveOut(batch, left, next)
		if len(sold) == 0 {
			return nil
		}
		var all pgx.Batch
		for _, item := range sold {
			all.Queue(`INSERT INTO orders (product, number, buyer, amount) VALUES ($1, $2, $3, $4)`,
				product, item.Result, item.Arg.Buyer, item.Arg.Amount)
		}
		all.Queue(`UPDATE stock SET qty = $1, next = $2 WHERE product = $3`, left, next, product)
		return tx.SendBatch(ctx, &all).Close() // the first error of any of them
	})
}

// claim takes the product for the fence of this hold, and reads it.
func claim(ctx context.Context, tx pgx.Tx, product string) (left, next int, err error) {
	held, _ := wllock.HeldFrom(ctx)
	err = tx.QueryRow(ctx, `UPDATE stock SET fence = $1 WHERE product = $2 AND fence <= $1 RETURNING qty, next`,
		int64(held.Fence()), product).Scan(&left, &next)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrOvertaken
	}
	return left, next, err
}
