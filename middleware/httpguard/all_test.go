package httpguard_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// A handler that stops with its context and writes nothing: which of the locks was lost makes no difference.
func TestLossOfOneOfSeveralLocks(t *testing.T) {
	for name, key := range map[string]string{"product": secret, "account": "1"} {
		t.Run(name, func(t *testing.T) {
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			h := guardedByAll(l, func(_ http.ResponseWriter, r *http.Request) {
				faults.Lose(name, key)
				<-r.Context().Done()
			})
			get(t, start(t, false, h)).isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
			isFree(t, l)
		})
	}
}

// A guard of one key inside one of several runs at once.
func TestGuardNestedInAGuardOfSeveralKeys(t *testing.T) {
	l := wllocktest.New(t, wllock.WithThreshold(0))
	inner := httpguard.New(l, "account", func(*http.Request) (string, error) { return "1", nil })(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	require.Equal(t, http.StatusCreated, get(t, start(t, false, guardedByAll(l, inner.ServeHTTP))).status)
}

func TestClientThatLeavesWhileSomeLocksAreHeldFreesThem(t *testing.T) {
	l := taken(t)
	s := start(t, false, guardedByAll(l, never(t)))
	before := l.Stats().Names["account"].Held
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		assert.Eventually(t, func() bool { return l.Stats().Names["account"].Held == before+1 }, 10*time.Second, time.Millisecond)
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	_, err = s.Client().Do(r)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return l.Stats().Names["account"].Held == before }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Do(t.Context(), "account", "1", func(context.Context) error { return nil }, wllock.WithWait(10*time.Second)))
}
