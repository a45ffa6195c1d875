package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Event is what a partner sends, at least once, and in any order.
type Event struct {
	ID    string `json:"id"`
	Order string `json:"order"`
	Kind  string `json:"kind"`
}

// Webhook handles each event once, and the events of one order one at a time.
type Webhook struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
	Apply  func(ctx context.Context, tx pgx.Tx, e Event) error
}

func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e Event // check the partner's signature first
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&e); err != nil || e.ID == "" || e.Order == "" {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	if err := h.once(r.Context(), e); err != nil {
		slog.ErrorContext(r.Context(), "event failed", "event", e.ID, "error", err)
		http.Error(w, "send it again", http.StatusServiceUnavailable) // partners repeat after any 5xx
	}
}

// once does nothing if the event's id is known. The row and what Apply writes are committed together, or not at all.
func (h *Webhook) once(ctx context.Context, e Event) error {
	return h.Locker.Do(ctx, "order", e.Order, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, h.Pool, func(tx pgx.Tx) error {
			first, err := tx.Exec(ctx, `INSERT INTO events (id) VALUES ($1) ON CONFLICT DO NOTHING`, e.ID)
			if err != nil || first.RowsAffected() == 0 {
				return err
			}
			return h.Apply(ctx, tx, e)
		})
	}, wllock.WithWait(5*time.Second)) // less than the partner waits
}

// Mailer sends a mail for a customer at most once an hour, whoever asks.
func Mailer(locker *wllock.Locker, send func(ctx context.Context, customer string) error) func(context.Context, string) error {
	return func(ctx context.Context, customer string) error {
		err := locker.Do(ctx, "mail", customer, func(ctx context.Context) error { return send(ctx, customer) },
			wllock.NoWait(), wllock.WithHoldAtLeast(time.Hour))
		if errors.Is(err, wllock.ErrHeld) {
			return nil // it was sent, or is being sent
		}
		return err
	}
}
