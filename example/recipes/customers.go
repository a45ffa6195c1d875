package recipes

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

// Workers does the jobs of each customer in order and one at a time, and those of different customers at once.
// Any number of processes may have any number of them.
type Workers struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
	Fences *fenced.Guard
	Do     func(ctx context.Context, customer, job string) error
}

// Round does all jobs of the customers that no other worker is at. It returns how many were done.
func (w *Workers) Round(ctx context.Context) (done int, err error) {
	rows, err := w.Pool.Query(ctx,
		`SELECT customer FROM jobs GROUP BY customer ORDER BY min(id) LIMIT 100`)
	if err != nil {
		return 0, err
	}
	customers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	for _, customer := range customers {
		err := w.Locker.Do(ctx, "customer", customer, func(ctx context.Context) error {
			n, err := w.serve(ctx, customer)
			done += n
			return err
		}, wllock.NoWait())
		if err != nil && !errors.Is(err, wllock.ErrHeld) { // ErrHeld: another worker is at it
			return done, err
		}
	}
	return done, nil
}

// serve does the jobs of one customer, the oldest first. Each transaction claims the customer.
func (w *Workers) serve(ctx context.Context, customer string) (done int, err error) {
	for {
		var id int64
		var what string
		err := w.Fences.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx,
				`SELECT id, what FROM jobs WHERE customer = $1 ORDER BY id LIMIT 1`, customer).Scan(&id, &what)
		})
		if errors.Is(err, sql.ErrNoRows) {
			return done, nil
		}
		if err == nil {
			err = w.Do(ctx, customer, what)
		}
		if err == nil {
			err = w.Fences.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `DELETE FROM jobs WHERE id = $1`, id)
				return err
			})
		}
		if err != nil {
			return done, err
		}
		done++
	}
}
