package httpguard_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// Around http.TimeoutHandler the lock would be released while the work goes on.
func TestTimeoutHandlerInsideIsRefused(t *testing.T) {
	guard := httpguard.New(wllocktest.New(t), "product", byPath)
	late := http.TimeoutHandler(never(t), time.Second, "")
	require.PanicsWithValue(t, "httpguard: http.TimeoutHandler returns while its handler goes on, which then has no lock: use http.TimeoutHandler(guard(h), ...)",
		func() { guard(late) })
	require.NotPanics(t, func() { http.TimeoutHandler(guard(never(t)), time.Second, "") })
}

// Inside of it, a handler that goes on has the lock until it returns.
func TestTimeoutHandlerOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		var inside, runs atomic.Int32
		h := http.TimeoutHandler(guarded(l, func(http.ResponseWriter, *http.Request) {
			assert.EqualValues(t, 1, inside.Add(1))
			time.Sleep(time.Second) // does not look at its context
			runs.Add(1)
			inside.Add(-1)
		}), 300*time.Millisecond, "")
		order := func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?id="+secret, nil))
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		}
		var clients sync.WaitGroup
		clients.Go(order)
		synctest.Wait()
		for range 4 {
			clients.Go(order) // they give up their wait
		}
		clients.Wait()
		require.EqualValues(t, 1, l.Stats().Total.Held)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, runs.Load())
		require.Zero(t, l.Stats().Total.Held)
	})
}
