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

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/wllocktest"
)

func deliver(t *testing.T, h http.Handler, event string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhook", strings.NewReader(event)))
	return w.Code
}

// Five events of one order, each delivered by three processes at once, twice.
func TestWebhookAppliesEachEventOnce(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO accounts (id, balance) VALUES ('a', 0)`)
	var inside atomic.Int32
	apply := func(ctx context.Context, tx pgx.Tx, _ recipes.Event) error {
		assert.EqualValues(t, 1, inside.Add(1), "events of one order are handled one at a time")
		defer inside.Add(-1)
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + 1`)
		return err
	}
	inEach(openThree(t, redistest.Start(t)), 10, func(l *wllock.Locker, i int) {
		h := &recipes.Webhook{Locker: l, Pool: pool, Apply: apply}
		event := fmt.Sprintf(`{"id": "e%d", "order": "7", "kind": "paid"}`, i%5)
		for tries := 1; deliver(t, h, event) != http.StatusOK; tries++ { // the partner sends it again
			if !assert.Less(t, tries, 10) {
				return
			}
		}
	})
	require.EqualValues(t, 5, query[int64](t, pool, `SELECT balance FROM accounts`))
}

func TestWebhookWantsAFailedEventAgain(t *testing.T) {
	t.Parallel()
	const event = `{"id": "e1", "order": "7", "kind": "paid"}`
	fail := errors.New("deadlock in the database")
	h := &recipes.Webhook{Locker: wllocktest.New(t), Pool: database(t), Apply: func(context.Context, pgx.Tx, recipes.Event) error { return fail }}
	require.Equal(t, http.StatusServiceUnavailable, deliver(t, h, event))
	fail = nil
	require.Equal(t, http.StatusOK, deliver(t, h, event))
	require.Equal(t, http.StatusBadRequest, deliver(t, h, `{"id": "e1"}`))
}
