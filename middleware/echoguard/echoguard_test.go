package echoguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/echoguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/middleware/ratelimit"
	"github.com/wllock/wllock/wllocktest"
)

// answer is what a client gets.
type answer struct {
	*http.Response
	body string
}

// order sends a request for /orders/1000.
func order(t *testing.T, h http.Handler, header ...string) answer {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders/1000", nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(body)}
}

// isProblem checks the answer of a refusal.
func (a answer) isProblem(t *testing.T, status int, kind string) {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Contains(t, a.body, "#"+kind)
	require.True(t, json.Valid([]byte(a.body)), "something else was written as well: %s", a.body)
}

// never is a handler that must not run.
func never(t *testing.T) handler {
	return handle(func(*http.Request, http.ResponseWriter) { t.Error("run without the lock") })
}

var byID = httpguard.PathValue("id")

func calls(opts ...wllock.CallOption) httpguard.Option { return httpguard.WithCallOptions(opts...) }

func TestHandlerHasTheLockOfItsRoute(t *testing.T) {
	l := wllocktest.New(t)
	a := order(t, routes(echoguard.New(l, "product", byID), handle(func(r *http.Request, w http.ResponseWriter) {
		held, ok := wllock.HeldFrom(r.Context())
		assert.True(t, ok)
		assert.Equal(t, "test:product:1000", held.Key())
		w.Header().Set("X-Fence", strconv.FormatUint(held.Fence(), 10))
		w.WriteHeader(http.StatusCreated)
	})))
	require.Equal(t, http.StatusCreated, a.StatusCode)
	require.NotEmpty(t, a.Header.Get("X-Fence"))
	require.Zero(t, l.Stats().Total.Held)
}

func TestSeveralLocks(t *testing.T) {
	l := wllocktest.New(t)
	keys := func(r *http.Request) ([]wllock.Resource, error) {
		return []wllock.Resource{{Name: "account", Key: r.PathValue("id")}, {Name: "account", Key: r.Header.Get("To")}}, nil
	}
	a := order(t, routes(echoguard.NewAll(l, keys), handle(func(r *http.Request, w http.ResponseWriter) {
		for _, key := range []string{"1000", "2000"} {
			_, ok := wllock.HeldKey(r.Context(), "account", key)
			assert.True(t, ok, key)
		}
		w.WriteHeader(http.StatusNoContent)
	})), "To", "2000")
	require.Equal(t, http.StatusNoContent, a.StatusCode)
	order(t, routes(echoguard.NewAll(l, keys), never(t))).isProblem(t, http.StatusBadRequest, "invalid-key")
}

func TestRefusalsAreProblems(t *testing.T) {
	for kind, c := range map[string]struct {
		status int
		opts   []wllock.CallOption
	}{
		"queue-full":   {http.StatusTooManyRequests, []wllock.CallOption{wllock.WithCallThreshold(0)}},
		"wait-timeout": {http.StatusTooManyRequests, []wllock.CallOption{wllock.WithWait(time.Millisecond)}},
		"held":         {http.StatusConflict, []wllock.CallOption{wllock.NoWait()}},
	} {
		t.Run(kind, func(t *testing.T) {
			l := wllocktest.New(t)
			wllocktest.Hold(t, l, "product", "1000")
			a := order(t, routes(echoguard.New(l, "product", byID, calls(c.opts...)), never(t)))
			a.isProblem(t, c.status, kind)
			after, err := strconv.Atoi(a.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, after)
		})
	}
}

func TestOutageAndShutdown(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	h := routes(echoguard.New(l, "product", byID), never(t))
	faults.Partition()
	a := order(t, h)
	a.isProblem(t, http.StatusServiceUnavailable, "backend-unavailable")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	faults.Heal()
	require.NoError(t, l.Close(t.Context()))
	order(t, h).isProblem(t, http.StatusServiceUnavailable, "shutting-down")
}

func TestBadKey(t *testing.T) {
	l := wllocktest.New(t)
	for name, key := range map[string]httpguard.KeyFunc{
		"no such parameter": httpguard.PathValue("product"),
		"empty":             func(*http.Request) (string, error) { return "", nil },
		"error":             func(*http.Request) (string, error) { return "", errors.New("unreadable") },
	} {
		t.Run(name, func(t *testing.T) {
			a := order(t, routes(echoguard.New(l, "product", key), never(t)))
			a.isProblem(t, http.StatusBadRequest, "invalid-key")
			require.Empty(t, a.Header.Get("Retry-After"))
		})
	}
}

// The handler returns without an answer, and the framework must add none of its own.
func TestLostLock(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	lose := handle(func(r *http.Request, _ http.ResponseWriter) {
		faults.Lose("product", "1000")
		<-r.Context().Done()
	})
	for range 2 {
		order(t, routes(echoguard.New(l, "product", byID), lose)).isProblem(t, http.StatusServiceUnavailable, "lease-lost")
	}
}

func TestAnswerBeforeTheLossStays(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	a := order(t, routes(echoguard.New(l, "product", byID), handle(func(r *http.Request, w http.ResponseWriter) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "done")
		faults.Lose("product", "1000")
		<-r.Context().Done()
	})))
	require.Equal(t, http.StatusAccepted, a.StatusCode)
	require.Equal(t, "done", a.body)
}

// Outer middleware works with a context that has not ended with the lock.
func TestRequestIsAsBeforeAfterwards(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	seen := false
	h := behind(func(r *http.Request) {
		seen = true
		assert.NoError(t, r.Context().Err())
		_, ok := wllock.HeldFrom(r.Context())
		assert.False(t, ok)
		assert.Equal(t, "1000", r.PathValue("id"))
	}, echoguard.New(l, "product", byID), handle(func(r *http.Request, _ http.ResponseWriter) {
		faults.Lose("product", "1000")
		<-r.Context().Done()
	}))
	require.Equal(t, http.StatusServiceUnavailable, order(t, h).StatusCode)
	require.True(t, seen)
}

func TestPanicReleasesTheLock(t *testing.T) {
	l := wllocktest.New(t)
	h := recovered(echoguard.New(l, "product", byID), handle(func(*http.Request, http.ResponseWriter) { panic("oh") }))
	require.Equal(t, http.StatusInternalServerError, order(t, h).StatusCode)
	require.NoError(t, l.Do(t.Context(), "product", "1000", func(context.Context) error { return nil }, wllock.NoWait()))
}

// canceled ends the context of each request soon, as the end of a server does to those that wait.
func canceled(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

func TestAdaptTakesRateLimits(t *testing.T) {
	local := ratelimit.NewLocal()
	limits := ratelimit.New(local, []ratelimit.Rule{{
		Policy: ratelimit.Policy{Name: "product", Quota: 1, Window: time.Hour},
		Of:     func(r *http.Request) (string, error) { return r.PathValue("id"), nil },
	}})
	h := routes(echoguard.Adapt(limits), handle(func(_ *http.Request, w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }))
	require.Equal(t, http.StatusNoContent, order(t, h).StatusCode)
	order(t, h).isProblem(t, http.StatusTooManyRequests, "quota-exceeded")
}

// Behind the writer of the framework, too, reading a body ends with the lock.
func TestSlowBodyUnderALockThatEnds(t *testing.T) {
	l := wllocktest.New(t)
	server := httptest.NewServer(routes(echoguard.New(l, "product", byID, httpguard.WithoutBodyBuffer(), calls(wllock.WithLockTimeMax(50*time.Millisecond))),
		handle(func(r *http.Request, _ http.ResponseWriter) {
			_, err := io.ReadAll(r.Body)
			assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
		})))
	defer server.Close()
	body, rest := io.Pipe() // of which nothing comes
	defer rest.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders/1000", body)
	require.NoError(t, err)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	answer{resp, string(b)}.isProblem(t, http.StatusServiceUnavailable, "lease-lost")
}

// Behind the framework, too, nobody is let in whose answer the server could not write any more.
func TestWaitEndsBeforeTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		wllocktest.Hold(t, l, "product", "1000")
		ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 2 * time.Second})
		w := httptest.NewRecorder()
		routes(echoguard.New(l, "product", byID), never(t)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders/1000", nil))
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), "#wait-timeout")
	})
}

func TestMistakesPanic(t *testing.T) {
	require.Panics(t, func() { echoguard.Adapt(nil) })
	require.Panics(t, func() { echoguard.New(nil, "product", byID) })
	require.Panics(t, func() { echoguard.NewAll(wllocktest.New(t), nil) })
}
