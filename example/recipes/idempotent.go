package recipes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
)

// maxBody is more than any request of this service.
const maxBody = 1 << 20

// Work does what a POST asks for in the given transaction, and returns the answer.
type Work func(ctx context.Context, tx pgx.Tx, body []byte) (status int, answer []byte, err error)

// Customer tells whose request it is, after it has been authenticated.
type Customer = func(r *http.Request) (string, error)

// Idempotent is a handler of POST requests with an Idempotency-Key. The first one does the work and
// stores its answer in the same transaction; each repeat of this customer gets that answer.
func Idempotent(locker *wllock.Locker, pool *pgxpool.Pool, customer Customer, work Work) http.Handler {
	// A repeat waits for the first one's answer. Customers may choose the same keys.
	key := httpguard.Join(customer, httpguard.Header("Idempotency-Key"))
	guard := httpguard.New(locker, "idempotency", key,
		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)), httpguard.WithBodyBuffer(maxBody))
	return guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		var answer []byte
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) (err error) {
			status, answer, err = once(tx, r, customer, work)
			return err
		})
		switch {
		case err == nil:
			w.WriteHeader(status)
			_, _ = w.Write(answer)
		case r.Context().Err() == nil: // after a lost lock, the guard answers
			slog.ErrorContext(r.Context(), "request failed", "error", err)
			http.Error(w, "please repeat, with the same Idempotency-Key", http.StatusServiceUnavailable)
		}
	}))
}

// once returns the stored answer, or does the work and stores its answer.
func once(tx pgx.Tx, r *http.Request, whose Customer, work Work) (status int, answer []byte, err error) {
	ctx, key := r.Context(), r.Header.Get("Idempotency-Key")
	who, err := whose(r)
	if err != nil {
		return 0, nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, nil, err
	}
	request := sha256.Sum256(append([]byte(r.Method+" "+r.URL.RequestURI()+"\n"), body...))
	var stored []byte
	err = tx.QueryRow(ctx,
		`SELECT request, status, body FROM answers WHERE customer = $1 AND key = $2`,
		who, key).Scan(&stored, &status, &answer)
	switch {
	case err == nil && !bytes.Equal(stored, request[:]):
		return http.StatusUnprocessableEntity, []byte("this Idempotency-Key has another request\n"), nil
	case !errors.Is(err, pgx.ErrNoRows):
		return status, answer, err
	}
	if status, answer, err = work(ctx, tx, body); err != nil {
		return 0, nil, err
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO answers (customer, key, request, status, body) VALUES ($1, $2, $3, $4, $5)`,
		who, key, request[:], status, answer)
	return status, answer, err // the primary key refuses a second one, also if the lock was lost
}
