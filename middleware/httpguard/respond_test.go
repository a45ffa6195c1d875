package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// A handler of one's own answers each error as the middleware does, and an error of its own work tells nothing.
func TestRespond(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	wllocktest.Hold(t, l, "product", secret)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	do := func(ctx context.Context, key string, fn wllock.Func, opts ...wllock.CallOption) error {
		return l.Do(ctx, "product", key, fn, opts...)
	}
	fails := func(context.Context) error { return errors.New(secret) }
	for kind, test := range map[string]struct {
		err    error
		status int
		retry  bool
	}{
		"held":         {do(t.Context(), secret, fails, wllock.NoWait()), http.StatusConflict, true},
		"wait-timeout": {do(t.Context(), secret, fails, wllock.WithWait(time.Millisecond)), http.StatusTooManyRequests, true},
		"invalid-key":  {do(t.Context(), "", fails), http.StatusBadRequest, false},
		"canceled":     {do(canceled, secret, fails), http.StatusServiceUnavailable, true},
		"internal":     {do(t.Context(), "other", fails), http.StatusInternalServerError, false},
		"lease-lost": {do(t.Context(), "lost", func(ctx context.Context) error {
			faults.Lose("product", "lost")
			<-ctx.Done()
			return nil
		}), http.StatusServiceUnavailable, false},
	} {
		t.Run(kind, func(t *testing.T) {
			w := httptest.NewRecorder()
			httpguard.Respond(w, httptest.NewRequest(http.MethodPost, "/", nil), test.err)
			answer{w.Code, w.Header(), w.Body.String()}.isProblem(t, test.status, kind, test.retry)
		})
	}
}

// No second body follows one that has begun.
func TestRespondAfterAnAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	fmt.Fprint(w, "done")
	httpguard.Respond(w, httptest.NewRequest(http.MethodPost, "/", nil), wllock.ErrHeld)
	require.Equal(t, "done", w.Body.String())
}
