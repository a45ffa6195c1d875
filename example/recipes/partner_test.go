package recipes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
)

// Three processes with ten callers each, an API for four, and a change of its credentials in the middle.
func TestPartnerHasSoManyCallsAtATime(t *testing.T) {
	t.Parallel()
	const limit = 4
	var now, most, calls atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		n := now.Add(1)
		defer now.Add(-1)
		assert.LessOrEqual(t, n, int32(limit))
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); {
			old = most.Load()
		}
		time.Sleep(50 * time.Millisecond)
	}))
	defer api.Close()
	defer api.Client().CloseIdleConnections()
	inEach(openThree(t, redistest.Start(t)), 10, func(l *wllock.Locker, i int) {
		p := &recipes.Partner{Locker: l, Client: api.Client(), Limit: limit}
		if i == 5 {
			assert.NoError(t, p.Renew(t.Context(), func(context.Context) error {
				assert.Zero(t, now.Load(), "calls while the credentials change")
				time.Sleep(10 * time.Millisecond)
				assert.Zero(t, now.Load(), "calls while the credentials change")
				return nil
			}))
		}
		assert.NoError(t, patient(func() error {
			_, err := p.Get(t.Context(), api.URL)
			return err
		}))
	})
	require.EqualValues(t, 30, calls.Load())
	require.Greater(t, most.Load(), int32(1))
}

func TestPartnerThatFailsFreesItsPermit(t *testing.T) {
	t.Parallel()
	var fine atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !fine.Swap(true) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte("fine"))
	}))
	defer api.Close()
	defer api.Client().CloseIdleConnections()
	p := &recipes.Partner{Locker: open(t, redistest.Start(t)), Client: api.Client(), Limit: 1}
	_, err := p.Get(t.Context(), api.URL)
	require.EqualError(t, err, "the partner answered 502 Bad Gateway")
	answer, err := p.Get(t.Context(), api.URL)
	require.NoError(t, err)
	require.Equal(t, "fine", string(answer))
}
