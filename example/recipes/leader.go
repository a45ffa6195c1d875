package recipes

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Outbox sends the mails that other transactions have written into a table, from one process at a time.
type Outbox struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
	Every  time.Duration
	Send   func(ctx context.Context, id int64, mail string) error
}

type letter struct {
	ID   int64
	Text string
}

// Run waits until this process leads, and sends until ctx ends. Every process calls it.
func (o *Outbox) Run(ctx context.Context) error {
	return o.Locker.Lead(ctx, "leader", "outbox", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fence := int64(held.Fence()) // greater than that of every leader before
		for ; ctx.Err() == nil; sleep(ctx, o.Every) {
			if err := o.send(ctx, fence); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "the outbox was not sent", "error", err) // and tried again
			}
		}
		return ctx.Err() // lost: Lead waits to lead again; the end of the process: Lead returns
	})
}

// claimOutbox makes the row or claims it; no row can only mean that a later leader has. The same leader
// claims again and again, hence "<=".
const claimOutbox = `
	INSERT INTO leaders (id, fence) VALUES ('outbox', $1)
	ON CONFLICT (id) DO UPDATE SET fence = excluded.fence WHERE leaders.fence <= excluded.fence
`

// send claims the outbox for this leader, and sends what is in it, the oldest first.
func (o *Outbox) send(ctx context.Context, fence int64) error {
	return pgx.BeginFunc(ctx, o.Pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, claimOutbox, fence)
		if err != nil {
			return err
		}
		if claimed.RowsAffected() == 0 {
			return ErrOvertaken
		}
		rows, err := tx.Query(ctx, `SELECT id, mail FROM outbox ORDER BY id LIMIT 10`)
		if err != nil {
			return err
		}
		mails, err := pgx.CollectRows(rows, pgx.RowToStructByPos[letter])
		for _, mail := range mails {
			if err == nil {
				err = o.Send(ctx, mail.ID, mail.Text) // after a crash it is sent again, with the same id
			}
			if err == nil {
				_, err = tx.Exec(ctx, `DELETE FROM outbox WHERE id = $1`, mail.ID)
			}
		}
		return err
	})
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
