package httpguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestHandlerHasItsLocks(t *testing.T) {
	withEach(t, func(t *testing.T, guard func(*wllock.Locker, http.HandlerFunc, ...httpguard.Option) http.Handler) {
		l := wllocktest.New(t)
		var keys []string
		s := start(t, false, guard(l, func(w http.ResponseWriter, r *http.Request) {
			for name, key := range map[string]string{"product": secret, "account": "1"} {
				if held, ok := wllock.HeldKey(r.Context(), name, key); ok {
					keys = append(keys, held.Key())
					assert.Positive(t, held.Fence())
				}
			}
			_, ok := wllock.HeldFrom(r.Context())
			assert.True(t, ok)
			assert.EqualValues(t, len(keys), l.Stats().Total.Held)
			w.WriteHeader(http.StatusCreated)
		}))
		require.Equal(t, http.StatusCreated, get(t, s).status)
		want := []string{"test:product:" + secret, "test:account:1"}
		if strings.HasSuffix(t.Name(), "/one") {
			want = want[:1]
		}
		require.ElementsMatch(t, want, keys)
		isFree(t, l)
	})
}

// silent is a backend that does not respond.
type silent struct{ distributed.Backend }

func (silent) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	<-ctx.Done()
	return nil, nil, fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

func TestRefusals(t *testing.T) {
	fallback := wllock.WithFallback(func(context.Context, error) error { t.Error("called"); return nil })
	held := func(t *testing.T) *wllock.Locker { return taken(t, wllock.WithDefaults(fallback)) } // which answers nothing
	away := func(t *testing.T) *wllock.Locker {
		l, faults := wllocktest.NewWithFaults(t)
		faults.Partition()
		return l
	}
	hangs := func(t *testing.T) *wllock.Locker { return testlocker.On(t, silent{memlock.New()}) }
	closed := func(t *testing.T) *wllock.Locker {
		l := wllocktest.New(t)
		require.NoError(t, l.Close(t.Context()))
		return l
	}
	calls := httpguard.WithCallOptions
	respond := httpguard.WithResponder(func(w http.ResponseWriter, r *http.Request, _ int, err error) { httpguard.Respond(w, r, err) })
	for name, test := range map[string]struct {
		locker func(t *testing.T) *wllock.Locker
		opts   []httpguard.Option
		status int
		kind   string
	}{
		"queue full": {held, []httpguard.Option{calls(wllock.WithCallThreshold(0))}, http.StatusTooManyRequests, "queue-full"},
		"another status": {held, []httpguard.Option{calls(wllock.WithCallThreshold(0)), httpguard.WithShedStatus(http.StatusServiceUnavailable)},
			http.StatusServiceUnavailable, "queue-full"},
		"wait timeout": {held, []httpguard.Option{calls(wllock.WithWait(10 * time.Millisecond))}, http.StatusTooManyRequests, "wait-timeout"},
		"held":         {held, []httpguard.Option{calls(wllock.NoWait())}, http.StatusConflict, "held"},
		"fallback":     {held, []httpguard.Option{calls(wllock.NoWait(), fallback)}, http.StatusConflict, "held"},
		// A responder answers some errors itself, and leaves the others to the default.
		"responder":   {held, []httpguard.Option{calls(wllock.NoWait()), respond}, http.StatusConflict, "held"},
		"wrong":       {held, []httpguard.Option{calls(wllock.WithWait(-1))}, http.StatusInternalServerError, "internal"},
		"unavailable": {away, nil, http.StatusServiceUnavailable, "backend-unavailable"},
		// That a short wait has timed out meanwhile does not hide that the backend is unreachable.
		"silent": {hangs, []httpguard.Option{calls(wllock.WithWait(10 * time.Millisecond))}, http.StatusServiceUnavailable, "backend-unavailable"},
		"closed": {closed, nil, http.StatusServiceUnavailable, "shutting-down"},
	} {
		t.Run(name, func(t *testing.T) {
			withEach(t, func(t *testing.T, guard func(*wllock.Locker, http.HandlerFunc, ...httpguard.Option) http.Handler) {
				s := start(t, false, guard(test.locker(t), never(t), test.opts...))
				millis := get(t, s).isProblem(t, test.status, test.kind, test.kind != "internal")
				if test.kind == "shutting-down" { // it does not know when another server is ready
					require.Nil(t, millis)
				}
			})
		})
	}
}

// A request takes one of the permits, beside others. That of a caller elsewhere is one of them, too.
func TestPermits(t *testing.T) {
	b := memlock.New()
	l, other := testlocker.On(t, b), testlocker.On(t, b)
	s := serve(t, l, byPath, reading, httpguard.WithCallOptions(wllock.Permits(2), wllock.NoWait()))
	defer testlocker.Hold(t, l, "product", secret, wllock.Permits(2))()
	require.Equal(t, http.StatusOK, get(t, s).status)
	defer testlocker.Hold(t, other, "product", secret, wllock.Permits(2))()
	get(t, s).isProblem(t, http.StatusConflict, "held", true)
}

func TestInvalidKey(t *testing.T) {
	l := wllocktest.New(t)
	one := func(key string, err error) func(http.Handler) http.Handler {
		return httpguard.New(l, "product", func(*http.Request) (string, error) { return key, err })
	}
	several := func(err error, all ...wllock.Resource) func(http.Handler) http.Handler {
		return httpguard.NewAll(l, func(*http.Request) ([]wllock.Resource, error) { return all, err })
	}
	var many []wllock.Resource
	for i := range 65 {
		many = append(many, wllock.Resource{Name: "product", Key: fmt.Sprint(secret, i)})
	}
	good := wllock.Resource{Name: "product", Key: secret}
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"empty":             one("", nil),
		"error":             one("", errors.New(secret)),
		"control":           one(secret+"\n", nil),
		"too long":          one(strings.Repeat("x", 513), nil),
		"none of several":   several(nil),
		"too many":          several(nil, many...),
		"an empty one":      several(nil, good, wllock.Resource{Name: "product"}),
		"a too long one":    several(nil, wllock.Resource{Name: "product", Key: strings.Repeat(secret, 100)}),
		"error for several": several(errors.New(secret)),
	} {
		t.Run(name, func(t *testing.T) {
			get(t, start(t, false, guard(never(t)))).isProblem(t, http.StatusBadRequest, "invalid-key", false)
		})
	}
	badName := several(nil, wllock.Resource{Name: "a product", Key: "1"}) // the program's mistake
	get(t, start(t, false, badName(never(t)))).isProblem(t, http.StatusInternalServerError, "internal", false)
}

// The detail says which of the mistakes it was, and nothing of the request.
func TestEachCauseOfA400HasItsDetail(t *testing.T) {
	l := wllocktest.New(t)
	byBody := httpguard.BodyJSON("id", 100)
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

func TestMistakesOfTheProgram(t *testing.T) {
	l := wllocktest.New(t)
	inner := guardedByAll(l, never(t)) // account:1 comes before product:...
	get(t, serve(t, l, byPath, inner.ServeHTTP)).isProblem(t, http.StatusInternalServerError, "internal", false)
	for name, mistake := range map[string]func(){
		"locker":              func() { httpguard.New(nil, "product", byPath) },
		"key":                 func() { httpguard.New(l, "product", nil) },
		"name":                func() { httpguard.New(l, "a product", byPath) },
		"no name":             func() { httpguard.New(l, "", byPath) },
		"option":              func() { httpguard.New(l, "product", byPath, nil) },
		"handler":             func() { httpguard.New(l, "product", byPath)(nil) },
		"part":                func() { httpguard.Join(byPath, nil) },
		"call":                func() { httpguard.WithCallOptions(wllock.NoWait(), nil) },
		"status":              func() { httpguard.WithShedStatus(200) },
		"buffer":              func() { httpguard.WithBodyBuffer(0) },
		"body":                func() { httpguard.BodyJSON("id", 0) },
		"answer":              func() { httpguard.WithResponder(nil) },
		"locker of several":   func() { httpguard.NewAll(nil, both) },
		"keys":                func() { httpguard.NewAll(l, nil) },
		"option of several":   func() { httpguard.NewAll(l, both, nil) },
		"handler for several": func() { httpguard.NewAll(l, both)(nil) },
	} {
		func() {
			defer func() { assert.IsType(t, "", recover(), name) }() // in words, which a nil pointer dereference has not
			mistake()
		}()
	}
}

func TestResponder(t *testing.T) {
	l := taken(t)
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

// Retry-After is never less than the estimate, and clients refused together do not return together. A client that can wait for milliseconds
// need not wait for whole seconds.
func TestRetryAfterIsJittered(t *testing.T) {
	for ttl, want := range map[time.Duration]struct {
		least, most string
		distinct    int
	}{60 * time.Second: {"20", "30", 4}, 300 * time.Millisecond: {"1", "2", 1}} {
		seconds, millis := map[string]bool{}, map[int64]bool{}
		for range 30 { // a first failure: TTL/3; after some, a Locker would say when it asks its backend again
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(ttl))
			faults.Partition()
			a := get(t, serve(t, l, byPath, never(t)))
			after, ms := a.header.Get("Retry-After"), a.isProblem(t, http.StatusServiceUnavailable, "backend-unavailable", true)
			require.GreaterOrEqual(t, after, want.least)
			require.LessOrEqual(t, after, want.most)
			require.GreaterOrEqual(t, *ms, (ttl / 3).Milliseconds())
			require.LessOrEqual(t, *ms, (ttl / 2).Milliseconds())
			seconds[after], millis[*ms] = true, true
		}
		require.GreaterOrEqual(t, len(seconds), want.distinct)
		require.Greater(t, len(millis), 1)
	}
}

func TestBodyTooLarge(t *testing.T) {
	l := wllocktest.New(t)
	buffered := serve(t, l, byPath, never(t), httpguard.WithBodyBuffer(4))
	keyed := serve(t, l, httpguard.BodyJSON("product_id", 4), never(t))
	for _, s := range []*httptest.Server{buffered, keyed} {
		for _, body := range []io.Reader{strings.NewReader("12345"), chunks{strings.NewReader("12345")}} {
			send(t, s, http.MethodPost, body).isProblem(t, http.StatusRequestEntityTooLarge, "body-too-large", false)
		}
	}
}

// chunks is a body of unknown length.
type chunks struct{ *strings.Reader }

// A deadline set by an outer middleware does not mean that the client has left: it gets an answer.
func TestDeadlineOfTheRequest(t *testing.T) {
	l := taken(t)
	h := guarded(l, never(t))
	s := start(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	get(t, s).isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
}

func TestPanicReleases(t *testing.T) {
	for name, what := range map[string]any{"any": "boom", "ErrAbortHandler": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			var seen atomic.Value
			h := guarded(l, func(http.ResponseWriter, *http.Request) { panic(what) })
			s := start(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					seen.Store(recover())
					panic(http.ErrAbortHandler)
				}()
				h.ServeHTTP(w, r)
			}))
			_, err := do(s, http.MethodGet, nil)
			require.Error(t, err)
			require.Equal(t, what, seen.Load())
			isFree(t, l)
		})
	}
}
