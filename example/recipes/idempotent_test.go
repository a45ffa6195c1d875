package recipes_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// byHeader stands for the customer that an authentication has found.
var byHeader = httpguard.Header("Customer")

func post(t *testing.T, h http.Handler, key, body string) (status int, answer string) {
	return send(t, h, http.MethodPost, "/payments", "alice", key, body)
}

func send(t *testing.T, h http.Handler, method, target, customer, key, body string) (status int, answer string) {
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Customer", customer)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestPostWorksOnce(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO accounts (id, balance) VALUES ('a', 0)`)
	pay := func(ctx context.Context, tx pgx.Tx, _ []byte) (int, []byte, error) {
		time.Sleep(50 * time.Millisecond) // so that repeats come in the middle
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + 1`)
		return http.StatusCreated, []byte("paid"), err
	}
	inEach(openThree(t, redistest.Start(t)), 5, func(l *wllock.Locker, _ int) {
		status, answer := post(t, recipes.Idempotent(l, pool, byHeader, pay), "k1", "1 EUR")
		for status == http.StatusTooManyRequests { // others take too long
			status, answer = post(t, recipes.Idempotent(l, pool, byHeader, pay), "k1", "1 EUR")
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
	h := recipes.Idempotent(wllocktest.New(t), pool, byHeader, func(context.Context, pgx.Tx, []byte) (int, []byte, error) {
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

// Customers number their requests alike, or guess each other's keys.
func TestKeyOfAnotherCustomerIsAnotherRequest(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var works int
	h := recipes.Idempotent(wllocktest.New(t), pool, byHeader, func(context.Context, pgx.Tx, []byte) (int, []byte, error) {
		works++
		return http.StatusCreated, fmt.Append(nil, "receipt ", works), nil
	})
	const target = "/payments?to=carol"
	for _, test := range []struct {
		method, target, customer, body string
		status                         int
		answer                         string
	}{
		{http.MethodPost, target, "alice", "1 EUR", http.StatusCreated, "receipt 1"},
		{http.MethodPost, target, "mallory", "1 EUR", http.StatusCreated, "receipt 2"},
		{http.MethodPost, target, "bob", "2 EUR", http.StatusCreated, "receipt 3"},
		{http.MethodPost, target, "alice:order", "1 EUR", http.StatusCreated, "receipt 4"},
		{http.MethodPost, target, "alice", "1 EUR", http.StatusCreated, "receipt 1"},
		{http.MethodPost, target, "alice", "2 EUR", http.StatusUnprocessableEntity, ""},
		{http.MethodPost, "/refunds?to=carol", "alice", "1 EUR", http.StatusUnprocessableEntity, ""},
		{http.MethodPost, "/payments?to=mallory", "alice", "1 EUR", http.StatusUnprocessableEntity, ""},
		{http.MethodPut, target, "alice", "1 EUR", http.StatusUnprocessableEntity, ""},
		{http.MethodPost, target, "", "1 EUR", http.StatusBadRequest, ""},
	} {
		status, answer := send(t, h, test.method, test.target, test.customer, "order-1", test.body)
		require.Equal(t, test.status, status, test)
		if test.answer != "" {
			require.Equal(t, test.answer, answer, test)
		}
	}
	require.Equal(t, 4, works)
}
