package recipes_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/wllocktest"
)

func post(t *testing.T, h http.Handler, key, body string) (status int, answer string) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestPostWorksOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	pool := database(t, `INSERT INTO accounts (id, balance) VALUES ('a', 0)`)
	pay := func(ctx context.Context, tx pgx.Tx, _ []byte) (int, []byte, error) {
		time.Sleep(50 * time.Millisecond) // so that repeats come in the middle
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + 1`)
		return http.StatusCreated, []byte("paid"), err
	}
	inEach(openThree(t, "redis://"+redis.Addr), 5, func(l *wllock.Locker, _ int) {
		status, answer := post(t, recipes.Idempotent(l, pool, pay), "k1", "1 EUR")
		for status == http.StatusTooManyRequests { // others take too long
			status, answer = post(t, recipes.Idempotent(l, pool, pay), "k1", "1 EUR")
		}
		assert.Equal(t, http.StatusCreated, status)
		assert.Equal(t, "paid", answer)
	})
	require.EqualValues(t, 1, query[int64](t, pool, `SELECT balance FROM accounts`))
}

func TestPostThatFailedIsDoneAgain(t *testing.T) {
	t.Parallel()
	pool := database(t)
	fail := errors.New("deadlock in the database")
	var tries atomic.Int32
	h := recipes.Idempotent(wllocktest.New(t), pool, func(context.Context, pgx.Tx, []byte) (int, []byte, error) {
		if tries.Add(1) == 1 {
			return 0, nil, fail
		}
		return http.StatusOK, []byte("done"), nil
	})
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusOK} {
		status, _ := post(t, h, "k1", "1 EUR")
		require.Equal(t, want, status)
	}
	require.EqualValues(t, 2, tries.Load())
	status, _ := post(t, h, "k1", "2 EUR")
	require.Equal(t, http.StatusUnprocessableEntity, status)
	status, _ = post(t, h, "", "1 EUR")
	require.Equal(t, http.StatusBadRequest, status)
	require.EqualValues(t, 2, tries.Load())
}
