// Package guardtest tests the guard of a web framework: what each has to do is said here, once.
package guardtest

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
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/middleware/ratelimit"
	"github.com/wllock/wllock/wllocktest"
)

// Framework is one, with the guard under test: M are its middlewares, and H its handlers.
type Framework[M, H any] struct {
	New    func(*wllock.Locker, string, httpguard.KeyFunc, ...httpguard.Option) M
	NewAll func(*wllock.Locker, httpguard.KeysFunc, ...httpguard.Option) M
	Adapt  func(func(http.Handler) http.Handler) M

	Handle    func(func(*http.Request, http.ResponseWriter)) H           // makes a handler
	Routes    func(guard M, h H) http.Handler                            // serves POST /orders/:id behind the guard
	Behind    func(outer func(*http.Request), guard M, h H) http.Handler // the same, and calls outer after both
	Recovered func(guard M, h H) http.Handler                            // the same, and recovers from panics

	// Compressed and Limited serve orders behind middlewares of the framework, before the guard. nil: it has none.
	Compressed func(guard M, h H) http.Handler
	Limited    func(bytes int64, guard M, h H) http.Handler
}

// Test runs all tests.
func (f Framework[M, H]) Test(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"HandlerHasTheLockOfItsRoute":   f.testHandlerHasTheLockOfItsRoute,
		"SeveralLocks":                  f.testSeveralLocks,
		"RefusalsAreProblems":           f.testRefusalsAreProblems,
		"OutageAndShutdown":             f.testOutageAndShutdown,
		"BadKey":                        f.testBadKey,
		"LostLock":                      f.testLostLock,
		"AnswerBeforeTheLossStays":      f.testAnswerBeforeTheLossStays,
		"RequestIsAsBeforeAfterwards":   f.testRequestIsAsBeforeAfterwards,
		"PanicReleasesTheLock":          f.testPanicReleasesTheLock,
		"AdaptTakesRateLimits":          f.testAdaptTakesRateLimits,
		"SlowBodyUnderALockThatEnds":    f.testSlowBodyUnderALockThatEnds,
		"WaitEndsBeforeTheWriteTimeout": f.testWaitEndsBeforeTheWriteTimeout,
		"MistakesPanic":                 f.testMistakesPanic,
		"BehindOuterMiddleware":         f.TestBehindOuterMiddleware,
	} {
		t.Run(name, test)
	}
}

// Answer is what a client gets.
type Answer struct {
	*http.Response
	Body string
}

// Order sends a request for /orders/1000.
func Order(t *testing.T, h http.Handler, header ...string) Answer {
	t.Helper()
	return send(t, h, nil, header...)
}

// send is Order with a body.
func send(t *testing.T, h http.Handler, body io.Reader, header ...string) Answer {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders/1000", body)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return Answer{resp, string(b)}
}

// IsProblem checks the answer of a refusal.
func (a Answer) IsProblem(t *testing.T, status int, kind string) {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.Body)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Contains(t, a.Body, "#"+kind)
	require.True(t, json.Valid([]byte(a.Body)), "something else was written as well: %s", a.Body)
}

// Never is a handler that must not run.
func (f Framework[M, H]) Never(t *testing.T) H {
	return f.Handle(func(*http.Request, http.ResponseWriter) { t.Errorf("%s runs without the lock", t.Name()) })
}

// ByID is the key of an order.
var ByID = httpguard.PathValue("id")

func calls(opts ...wllock.CallOption) httpguard.Option { return httpguard.WithCallOptions(opts...) }

func (f Framework[M, H]) testHandlerHasTheLockOfItsRoute(t *testing.T) {
	l := wllocktest.New(t)
	a := Order(t, f.Routes(f.New(l, "product", ByID), f.Handle(func(r *http.Request, w http.ResponseWriter) {
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

func (f Framework[M, H]) testSeveralLocks(t *testing.T) {
	l := wllocktest.New(t)
	keys := func(r *http.Request) ([]wllock.Resource, error) {
		return []wllock.Resource{{Name: "account", Key: r.PathValue("id")}, {Name: "account", Key: r.Header.Get("To")}}, nil
	}
	a := Order(t, f.Routes(f.NewAll(l, keys), f.Handle(func(r *http.Request, w http.ResponseWriter) {
		for _, key := range []string{"1000", "2000"} {
			_, ok := wllock.HeldKey(r.Context(), "account", key)
			assert.True(t, ok, key)
		}
		w.WriteHeader(http.StatusNoContent)
	})), "To", "2000")
	require.Equal(t, http.StatusNoContent, a.StatusCode)
	Order(t, f.Routes(f.NewAll(l, keys), f.Never(t))).IsProblem(t, http.StatusBadRequest, "invalid-key")
}

func (f Framework[M, H]) testRefusalsAreProblems(t *testing.T) {
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
			a := Order(t, f.Routes(f.New(l, "product", ByID, calls(c.opts...)), f.Never(t)))
			a.IsProblem(t, c.status, kind)
			after, err := strconv.Atoi(a.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, after)
		})
	}
}

func (f Framework[M, H]) testOutageAndShutdown(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	h := f.Routes(f.New(l, "product", ByID), f.Never(t))
	faults.Partition()
	a := Order(t, h)
	a.IsProblem(t, http.StatusServiceUnavailable, "backend-unavailable")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	faults.Heal()
	require.NoError(t, l.Close(t.Context()))
	Order(t, h).IsProblem(t, http.StatusServiceUnavailable, "shutting-down")
}

func (f Framework[M, H]) testBadKey(t *testing.T) {
	l := wllocktest.New(t)
	for name, key := range map[string]httpguard.KeyFunc{
		"no such parameter": httpguard.PathValue("product"),
		"empty":             func(*http.Request) (string, error) { return "", nil },
		"error":             func(*http.Request) (string, error) { return "", errors.New("unreadable") },
	} {
		t.Run(name, func(t *testing.T) {
			a := Order(t, f.Routes(f.New(l, "product", key), f.Never(t)))
			a.IsProblem(t, http.StatusBadRequest, "invalid-key")
			require.Empty(t, a.Header.Get("Retry-After"))
		})
	}
}

// The handler returns without an answer, and the framework must add none of its own.
func (f Framework[M, H]) testLostLock(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	lose := f.Handle(func(r *http.Request, _ http.ResponseWriter) {
		faults.Lose("product", "1000")
		<-r.Context().Done()
	})
	for range 2 {
		Order(t, f.Routes(f.New(l, "product", ByID), lose)).IsProblem(t, http.StatusServiceUnavailable, "lease-lost")
	}
}

func (f Framework[M, H]) testAnswerBeforeTheLossStays(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	a := Order(t, f.Routes(f.New(l, "product", ByID), f.Handle(func(r *http.Request, w http.ResponseWriter) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "done")
		faults.Lose("product", "1000")
		<-r.Context().Done()
	})))
	require.Equal(t, http.StatusAccepted, a.StatusCode)
	require.Equal(t, "done", a.Body)
}

// Outer middleware works with a context that has not ended with the lock.
func (f Framework[M, H]) testRequestIsAsBeforeAfterwards(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(200*time.Millisecond))
	seen := false
	h := f.Behind(func(r *http.Request) {
		seen = true
		assert.NoError(t, r.Context().Err())
		_, ok := wllock.HeldFrom(r.Context())
		assert.False(t, ok)
		assert.Equal(t, "1000", r.PathValue("id"))
	}, f.New(l, "product", ByID), f.Handle(func(r *http.Request, _ http.ResponseWriter) {
		faults.Lose("product", "1000")
		<-r.Context().Done()
	}))
	require.Equal(t, http.StatusServiceUnavailable, Order(t, h).StatusCode)
	require.True(t, seen)
}

func (f Framework[M, H]) testPanicReleasesTheLock(t *testing.T) {
	l := wllocktest.New(t)
	h := f.Recovered(f.New(l, "product", ByID), f.Handle(func(*http.Request, http.ResponseWriter) { panic("oh") }))
	require.Equal(t, http.StatusInternalServerError, Order(t, h).StatusCode)
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

func (f Framework[M, H]) testAdaptTakesRateLimits(t *testing.T) {
	local := ratelimit.NewLocal()
	limits := ratelimit.New(local, []ratelimit.Rule{{
		Policy: ratelimit.Policy{Name: "product", Quota: 1, Window: time.Hour},
		Of:     func(r *http.Request) (string, error) { return r.PathValue("id"), nil },
	}})
	h := f.Routes(f.Adapt(limits), f.Handle(func(_ *http.Request, w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }))
	require.Equal(t, http.StatusNoContent, Order(t, h).StatusCode)
	Order(t, h).IsProblem(t, http.StatusTooManyRequests, "quota-exceeded")
}

// Behind the writer of the framework, too, reading a body ends with the lock.
func (f Framework[M, H]) testSlowBodyUnderALockThatEnds(t *testing.T) {
	l := wllocktest.New(t)
	h := f.Routes(f.New(l, "product", ByID, httpguard.WithoutBodyBuffer(), calls(wllock.WithLockTimeMax(50*time.Millisecond))),
		f.Handle(func(r *http.Request, _ http.ResponseWriter) {
			_, err := io.ReadAll(r.Body)
			assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
		}))
	body, rest := io.Pipe() // of which nothing comes
	defer func() { _ = rest.Close() }()
	send(t, h, body).IsProblem(t, http.StatusServiceUnavailable, "lease-lost")
}

// Behind the framework, too, nobody is let in whose answer the server could not write any more.
func (f Framework[M, H]) testWaitEndsBeforeTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		wllocktest.Hold(t, l, "product", "1000")
		ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 2 * time.Second})
		w := httptest.NewRecorder()
		f.Routes(f.New(l, "product", ByID), f.Never(t)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders/1000", nil))
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), "#wait-timeout")
	})
}

func (f Framework[M, H]) testMistakesPanic(t *testing.T) {
	require.Panics(t, func() { f.Adapt(nil) })
	require.Panics(t, func() { f.New(nil, "product", ByID) })
	require.Panics(t, func() { f.NewAll(wllocktest.New(t), nil) })
}
