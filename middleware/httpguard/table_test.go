package httpguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestHandlerHasTheLock(t *testing.T) {
	l := wllocktest.New(t)
	s := serve(t, l, byPath, func(w http.ResponseWriter, r *http.Request) {
		held, ok := wllock.HeldFrom(r.Context())
		assert.True(t, ok)
		assert.Equal(t, "test:product:"+secret, held.Key())
		assert.Positive(t, held.Fence())
		assert.EqualValues(t, 1, l.Stats().Total.Held)
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, get(t, s).status)
	isFree(t, l)
}

func TestQueueFull(t *testing.T) {
	l := wllocktest.New(t, wllock.WithThreshold(0))
	wllocktest.Hold(t, l, "product", secret)
	get(t, serve(t, l, byPath, never(t))).isProblem(t, http.StatusTooManyRequests, "queue-full", true)
	get(t, serve(t, l, byPath, never(t), httpguard.WithShedStatus(http.StatusServiceUnavailable))).
		isProblem(t, http.StatusServiceUnavailable, "queue-full", true)
}

func TestWaitTimeout(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.WithWait(10*time.Millisecond)))
	get(t, s).isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
}

func TestHeld(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.NoWait()))
	get(t, s).isProblem(t, http.StatusConflict, "held", true)
}

func TestBackendUnavailable(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	s := serve(t, l, byPath, never(t))
	faults.Partition()
	get(t, s).isProblem(t, http.StatusServiceUnavailable, "backend-unavailable", true)
	faults.Heal()
}

// silent is a backend that does not respond.
type silent struct{ distributed.Backend }

func (silent) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	<-ctx.Done()
	return nil, nil, fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

// That a short wait has timed out meanwhile does not hide that the backend is unreachable.
func TestBackendUnavailableForAShortWait(t *testing.T) {
	l, err := wllock.New("test", silent{memlock.New()})
	require.NoError(t, err)
	defer l.Close(t.Context())
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.WithWait(10*time.Millisecond)))
	get(t, s).isProblem(t, http.StatusServiceUnavailable, "backend-unavailable", true)
}

func TestClosed(t *testing.T) {
	l := wllocktest.New(t)
	require.NoError(t, l.Close(t.Context()))
	get(t, serve(t, l, byPath, never(t))).isProblem(t, http.StatusServiceUnavailable, "shutting-down", true)
}

func TestInvalidKey(t *testing.T) {
	for name, key := range map[string]httpguard.KeyFunc{
		"empty":    func(*http.Request) (string, error) { return "", nil },
		"error":    func(*http.Request) (string, error) { return "", errors.New(secret) },
		"control":  func(*http.Request) (string, error) { return secret + "\n", nil },
		"too long": func(*http.Request) (string, error) { return strings.Repeat("x", 513), nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			get(t, serve(t, l, key, never(t))).isProblem(t, http.StatusBadRequest, "invalid-key", false)
		})
	}
}

// The detail says which of the mistakes it was, and nothing of the request.
func TestEachCauseOfA400HasItsDetail(t *testing.T) {
	l := wllocktest.New(t)
	byBody, byQuery := httpguard.BodyJSON("id", 100), httpguard.Query("id")
	for _, test := range []struct {
		key          httpguard.KeyFunc
		target, body string
		detail       string
	}{
		{byQuery, "/", "", "is missing"},
		{byQuery, "/?id=", "", "is missing"},
		{byQuery, "/?id=" + secret + "&id=2", "", "occurs more than once"},
		{byQuery, "/?id=" + secret + "%00", "", "malformed"},
		{httpguard.Join(byQuery, func(*http.Request) (string, error) { return "", nil }), "/?id=" + secret, "", "is missing"},
		{byBody, "/", `{}`, "is missing"},
		{byBody, "/", `{"id": "` + secret + `", "ID": 2}`, "occurs more than once"},
		{byBody, "/", secret, "not one JSON object"},
		{byBody, "/", `{"id": 1e3}`, "neither a string nor a whole number"},
		{byBody, "/", `{"id": 9007199254740993}`, "send it as a string"},
		{func(*http.Request) (string, error) { return "", errors.New(secret) }, "/", "", "malformed"},
	} {
		w := httptest.NewRecorder()
		httpguard.New(l, "product", test.key)(never(t)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, test.target, strings.NewReader(test.body)))
		require.Equal(t, http.StatusBadRequest, w.Code)
		var p struct{ Type, Detail string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		assert.Contains(t, p.Detail, test.detail, test)
		assert.True(t, strings.HasSuffix(p.Type, "#invalid-key"), p.Type)
		assert.NotContains(t, w.Body.String(), secret)
	}
}

func TestMistakesOfTheProgramAre500(t *testing.T) {
	l := wllocktest.New(t)
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.WithWait(-1)))
	get(t, s).isProblem(t, http.StatusInternalServerError, "internal", false)
	for name, mistake := range map[string]func(){
		"locker":  func() { httpguard.New(nil, "product", byPath) },
		"key":     func() { httpguard.New(l, "product", nil) },
		"name":    func() { httpguard.New(l, "a product", byPath) },
		"no name": func() { httpguard.New(l, "", byPath) },
		"option":  func() { httpguard.New(l, "product", byPath, nil) },
		"handler": func() { httpguard.New(l, "product", byPath)(nil) },
		"part":    func() { httpguard.Join(byPath, nil) },
		"call":    func() { httpguard.WithCallOptions(wllock.NoWait(), nil) },
		"status":  func() { httpguard.WithShedStatus(200) },
		"buffer":  func() { httpguard.WithBodyBuffer(0) },
		"body":    func() { httpguard.BodyJSON("id", 0) },
		"answer":  func() { httpguard.WithResponder(nil) },
	} {
		panicsInWords(t, name, mistake)
	}
}

// panicsInWords checks that a mistake is named, which a nil pointer dereference does not.
func panicsInWords(t *testing.T, name string, mistake func()) {
	t.Helper()
	defer func() { assert.IsType(t, "", recover(), name) }()
	mistake()
}

func TestFallbackOfTheLockerAnswersNothing(t *testing.T) {
	fallback := wllock.WithFallback(func(context.Context, error) error { t.Error("called"); return nil })
	l := wllocktest.New(t, wllock.WithDefaults(fallback))
	wllocktest.Hold(t, l, "product", secret)
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.NoWait(), fallback))
	get(t, s).isProblem(t, http.StatusConflict, "held", true)
}

func TestResponder(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	s := serve(t, l, byPath, never(t), httpguard.WithCallOptions(wllock.NoWait()),
		httpguard.WithResponder(func(w http.ResponseWriter, r *http.Request, status int, err error) {
			assert.ErrorIs(t, err, wllock.ErrHeld)
			assert.Equal(t, http.StatusConflict, status)
			http.Error(w, "sold out, try again", http.StatusTeapot)
		}))
	a := get(t, s)
	require.Equal(t, http.StatusTeapot, a.status)
	require.Equal(t, "sold out, try again\n", a.body)
	require.NotEmpty(t, a.header.Get("Retry-After"))
}

// Retry-After is never less than the estimate, and clients refused together do not return together.
func TestRetryAfterIsJittered(t *testing.T) {
	seen := map[string]bool{}
	for range 30 { // a first failure: TTL/3; after some, a Locker would say when it asks its backend again
		l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(60*time.Second))
		faults.Partition()
		after := get(t, serve(t, l, byPath, never(t))).header.Get("Retry-After")
		faults.Heal()
		require.GreaterOrEqual(t, after, "20")
		require.LessOrEqual(t, after, "30")
		seen[after] = true
	}
	require.Greater(t, len(seen), 3)
}

// A client that can wait for milliseconds need not wait for whole seconds.
func TestRetryAfterInMilliseconds(t *testing.T) {
	seen := map[int64]bool{}
	for range 10 {
		l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(300*time.Millisecond))
		faults.Partition()
		a := get(t, serve(t, l, byPath, never(t)))
		faults.Heal()
		a.isProblem(t, http.StatusServiceUnavailable, "backend-unavailable", true)
		var p struct {
			RetryAfter int64 `json:"retry_after_ms"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		require.GreaterOrEqual(t, p.RetryAfter, int64(100), "a third of the TTL")
		require.LessOrEqual(t, p.RetryAfter, int64(150))
		seen[p.RetryAfter] = true
	}
	require.Greater(t, len(seen), 1)
}

// A Locker that closes does not know when another server is ready.
func TestUnknownDelayIsLeftOut(t *testing.T) {
	l := wllocktest.New(t)
	require.NoError(t, l.Close(t.Context()))
	a := get(t, serve(t, l, byPath, never(t)))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.NotContains(t, a.body, "retry_after_ms")
}

func TestBodyTooLarge(t *testing.T) {
	l := wllocktest.New(t)
	buffered := serve(t, l, byPath, never(t), httpguard.WithBodyBuffer(4))
	keyed := serve(t, l, httpguard.BodyJSON("product_id", 4), never(t))
	for _, s := range []*httptest.Server{buffered, keyed} {
		send(t, s, http.MethodPost, "12345").isProblem(t, http.StatusRequestEntityTooLarge, "body-too-large", false)

		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders/"+secret, chunks{strings.NewReader("12345")})
		require.NoError(t, err)
		do(t, s, r).isProblem(t, http.StatusRequestEntityTooLarge, "body-too-large", false)
	}
}

// chunks is a body of unknown length.
type chunks struct{ *strings.Reader }

// A deadline set by an outer middleware does not mean that the client has left: it gets an answer.
func TestDeadlineOfTheRequest(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", secret)
	guarded := httpguard.New(l, "product", httpguard.Query("id"))(never(t))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer cancel()
		guarded.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"?id="+secret, nil)
	require.NoError(t, err)
	do(t, s, r).isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
}

func TestPanicReleases(t *testing.T) {
	for name, what := range map[string]any{"any": "boom", "ErrAbortHandler": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			var seen atomic.Value
			guarded := httpguard.New(l, "product", httpguard.Query("id"))(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(what) }))
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					seen.Store(recover())
					panic(http.ErrAbortHandler)
				}()
				guarded.ServeHTTP(w, r)
			}))
			defer s.Close()
			resp, err := s.Client().Get(s.URL + "?id=" + secret)
			if err == nil {
				resp.Body.Close()
			}
			require.Error(t, err)
			require.Equal(t, what, seen.Load())
			isFree(t, l)
		})
	}
}
