package recipes

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

// Outbox sends the mails that other transactions have written into a table, from one process at a time.
type Outbox struct {
	Locker *wllock.Locker
	Fences *fenced.Guard
	Every  time.Duration
	Send   func(ctx context.Context, id int64, mail string) error
}

// Run waits until this process leads, and sends until ctx ends. Every process calls it.
func (o *Outbox) Run(ctx context.Context) error {
	return o.Locker.Lead(ctx, "leader", "outbox", func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := o.Fences.Tx(ctx, o.send) // refused, if there is a later leader
			if err == nil {
				continue // with the next mail
			}
			if !errors.Is(err, sql.ErrNoRows) && ctx.Err() == nil {
				slog.WarnContext(ctx, "the mail was not sent", "error", err) // and tried again
			}
			sleep(ctx, o.Every)
		}
		return ctx.Err() // lost: Lead waits to lead again; the end of the process: Lead returns
	})
}

// send sends the oldest mail. After a crash it is sent again, with the same id.
func (o *Outbox) send(ctx context.Context, tx *sql.Tx) error {
	var id int64
	var mail string
	err := tx.QueryRowContext(ctx,
		`DELETE FROM outbox WHERE id = (SELECT min(id) FROM outbox) RETURNING id, mail`).Scan(&id, &mail)
	if err == nil {
		err = o.Send(ctx, id, mail)
	}
	return err
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
