package recipes

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Workers does the jobs of each customer in order and one at a time, and those of different customers at once.
// Any number of processes may have any number of them.
type Workers struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
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

// serve does the jobs of one customer, the oldest first.
func (w *Workers) serve(ctx context.Context, customer string) (done int, err error) {
	held, _ := wllock.HeldFrom(ctx)
	fence := int64(held.Fence())
	claimed, err := w.Pool.Exec(ctx,
		`UPDATE customers SET fence = $1 WHERE id = $2 AND fence < $1`, fence, customer)
	if err == nil && claimed.RowsAffected() == 0 {
		err = ErrOvertaken // every job has a customer, so the row exists
	}
	for err == nil {
		var id int64
		var what string
		err = w.Pool.QueryRow(ctx,
			`SELECT id, what FROM jobs WHERE customer = $1 ORDER BY id LIMIT 1`, customer).Scan(&id, &what)
		if errors.Is(err, pgx.ErrNoRows) {
			return done, nil
		}
		if err == nil {
			err = w.Do(ctx, customer, what)
		}
		if err == nil {
			err = w.finish(ctx, customer, id, fence)
			done++
		}
	}
	return done, err
}

// finish removes a job if the claim still stands.
func (w *Workers) finish(ctx context.Context, customer string, job, fence int64) error {
	gone, err := w.Pool.Exec(ctx, `DELETE FROM jobs WHERE id = $1
		AND EXISTS (SELECT FROM customers WHERE id = $2 AND fence = $3 FOR UPDATE)`, job, customer, fence)
	if err == nil && gone.RowsAffected() == 0 {
		err = ErrOvertaken
	}
	return err
}
