package recipes

import (
	"context"
	"encoding/json"
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
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&e)
	if err != nil || e.ID == "" || e.Order == "" {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	if err := h.once(r.Context(), e); err != nil {
		slog.ErrorContext(r.Context(), "event failed", "event", e.ID, "error", err)
		http.Error(w, "send it again", http.StatusServiceUnavailable) // partners repeat after any 5xx
	}
}

// once does nothing if the event's id is known. Its row and what Apply writes are committed together.
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
