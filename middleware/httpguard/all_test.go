package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// serveAll runs handler behind a guard of several keys.
func serveAll(t testing.TB, l *wllock.Locker, all httpguard.KeysFunc, h http.HandlerFunc, opts ...httpguard.Option) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(httpguard.NewAll(l, all, opts...)(h))
	t.Cleanup(s.Close)
	return s
}

// both asks for the secret key and another one.
func both(*http.Request) ([]wllock.Resource, error) {
	return []wllock.Resource{{Name: "product", Key: secret}, {Name: "account", Key: "1"}}, nil
}

func TestHandlerHasAllLocks(t *testing.T) {
	l := wllocktest.New(t)
	s := serveAll(t, l, both, func(w http.ResponseWriter, r *http.Request) {
		for name, key := range map[string]string{"product": secret, "account": "1"} {
			held, ok := wllock.HeldKey(r.Context(), name, key)
			assert.True(t, ok)
			assert.Positive(t, held.Fence())
		}
		assert.EqualValues(t, 2, l.Stats().Total.Held)
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, get(t, s).status)
	isFree(t, l)
}

func TestRefusalsOfSeveralKeysAreThoseOfOne(t *testing.T) {
	for kind, test := range map[string]struct {
		opts   []wllock.CallOption
		status int
	}{
		"held":         {[]wllock.CallOption{wllock.NoWait()}, http.StatusConflict},
		"wait-timeout": {[]wllock.CallOption{wllock.WithWait(10 * time.Millisecond)}, http.StatusTooManyRequests},
		"queue-full":   {[]wllock.CallOption{wllock.WithCallThreshold(0)}, http.StatusTooManyRequests},
	} {
		t.Run(kind, func(t *testing.T) {
			l := wllocktest.New(t)
			wllocktest.Hold(t, l, "product", secret)
			s := serveAll(t, l, both, never(t), httpguard.WithCallOptions(test.opts...))
			get(t, s).isProblem(t, test.status, kind, true)
		})
	}
}

func TestFallbackOfTheLockerAnswersNothingForSeveralKeys(t *testing.T) {
	fallback := wllock.WithFallback(func(context.Context, error) error { t.Error("called"); return nil })
	l := wllocktest.New(t, wllock.WithDefaults(fallback))
	wllocktest.Hold(t, l, "product", secret)
	get(t, serveAll(t, l, both, never(t), httpguard.WithCallOptions(wllock.NoWait()))).isProblem(t, http.StatusConflict, "held", true)
}

func TestBadKeysOfSeveralAreTheClientsMistake(t *testing.T) {
	l := wllocktest.New(t)
	var many []wllock.Resource
	for i := range 65 {
		many = append(many, wllock.Resource{Name: "product", Key: fmt.Sprint(secret, i)})
	}
	for name, all := range map[string][]wllock.Resource{
		"none":     nil,
		"too many": many,
		"empty":    {{Name: "product", Key: secret}, {Name: "product"}},
		"too long": {{Name: "product", Key: strings.Repeat(secret, 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveAll(t, l, func(*http.Request) ([]wllock.Resource, error) { return all, nil }, never(t))
			get(t, s).isProblem(t, http.StatusBadRequest, "invalid-key", false)
		})
	}
	s := serveAll(t, l, func(*http.Request) ([]wllock.Resource, error) { return nil, errors.New(secret) }, never(t))
	get(t, s).isProblem(t, http.StatusBadRequest, "invalid-key", false)
}

func TestMistakesOfTheProgramWithSeveralKeysAre500(t *testing.T) {
	l := wllocktest.New(t)
	badName := func(*http.Request) ([]wllock.Resource, error) {
		return []wllock.Resource{{Name: "a product", Key: "1"}}, nil
	}
	get(t, serveAll(t, l, badName, never(t))).isProblem(t, http.StatusInternalServerError, "internal", false)

	inner := httpguard.NewAll(l, both)(never(t)) // account:1 comes before product:...
	outer := serve(t, l, byPath, inner.ServeHTTP)
	get(t, outer).isProblem(t, http.StatusInternalServerError, "internal", false)

	for name, mistake := range map[string]func(){
		"locker": func() { httpguard.NewAll(nil, both) },
		"keys":   func() { httpguard.NewAll(l, nil) },
		"option": func() { httpguard.NewAll(l, both, nil) },
		"next":   func() { httpguard.NewAll(l, both)(nil) },
	} {
		panicsInWords(t, name, mistake)
	}
}

// A handler that stops with its context and writes nothing: which of the locks was lost makes no difference.
func TestLossOfOneOfSeveralLocks(t *testing.T) {
	for name, key := range map[string]string{"product": secret, "account": "1"} {
		t.Run(name, func(t *testing.T) {
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			s := serveAll(t, l, both, func(_ http.ResponseWriter, r *http.Request) {
				faults.Lose(name, key)
				<-r.Context().Done()
			})
			get(t, s).isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
			isFree(t, l)
		})
	}
}

// A guard of one key inside one of several runs at once.
func TestGuardNestedInAGuardOfSeveralKeys(t *testing.T) {
	l := wllocktest.New(t, wllock.WithThreshold(0))
	inner := httpguard.New(l, "account", func(*http.Request) (string, error) { return "1", nil })(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	require.Equal(t, http.StatusCreated, get(t, serveAll(t, l, both, inner.ServeHTTP)).status)
}

func TestClientThatLeavesWhileSomeLocksAreHeldFreesThem(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	s := serveAll(t, l, both, never(t))
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
