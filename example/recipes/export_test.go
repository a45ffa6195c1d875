package recipes_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
)

// The web's Locker takes the lock, and the worker's ends it: from the request to the end of the job others get 409.
func TestExportBeginsInARequestAndEndsInAJob(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	type job struct {
		account string
		token   wllock.Token
	}
	queue, full := make(chan job, 1), errors.New("the queue is full")
	exports := func() *recipes.Exports {
		e := &recipes.Exports{Locker: open(t, redis)}
		e.Queue = func(_ context.Context, account string, token wllock.Token) error {
			select {
			case queue <- job{account, token}:
				return nil
			default:
				return full
			}
		}
		return e
	}
	web, worker := exports(), exports()
	post := func(account string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.SetPathValue("account", account)
		w := httptest.NewRecorder()
		web.ServeHTTP(w, r)
		return w.Code
	}
	var exported atomic.Int32
	worker.Export = func(ctx context.Context, account string) error {
		exported.Add(1)
		assert.Equal(t, http.StatusConflict, post(account), "it runs")
		held, ok := wllock.HeldFrom(ctx)
		assert.True(t, ok)
		assert.NoError(t, held.Err())
		return nil
	}
	require.Equal(t, http.StatusAccepted, post("7"))
	require.Equal(t, http.StatusConflict, post("7"), "it is queued")
	require.Equal(t, http.StatusServiceUnavailable, post("8"), "the queue is full")
	one := <-queue
	require.Equal(t, http.StatusAccepted, post("8"), "what could not be queued was released")
	require.NoError(t, worker.Run(t.Context(), one.account, one.token))
	require.NoError(t, worker.Run(t.Context(), one.account, one.token), "delivered again")
	require.EqualValues(t, 2, exported.Load())
	<-queue
	require.Equal(t, http.StatusAccepted, post("7"))
}
