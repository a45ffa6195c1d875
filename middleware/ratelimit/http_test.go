package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/middleware/ratelimit"
)

const secret = "s3cret"

func caller(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }

func product(r *http.Request) (string, error) { return r.URL.Query().Get("id"), nil }

var (
	perCaller  = ratelimit.Rule{Policy: ratelimit.Policy{Name: "caller", Quota: 2, Window: time.Minute}, Of: caller}
	perProduct = ratelimit.Rule{Policy: ratelimit.Policy{Name: "product", Quota: 3, Window: 90 * time.Second}, Of: product}
)

// limited is a server behind limits, with the number of calls of its handler.
type limited struct {
	*httptest.Server
	served atomic.Int32
}

func serve(t testing.TB, limiter ratelimit.Limiter, rules []ratelimit.Rule, opts ...ratelimit.Option) *limited {
	t.Helper()
	s := &limited{}
	s.Server = httptest.NewServer(ratelimit.New(limiter, rules, opts...)(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { s.served.Add(1) })))
	t.Cleanup(s.Close)
	return s
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *limited) get(t testing.TB, caller, product, idempotencyKey string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"?id="+product, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", caller)
	r.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func TestQuotaExceeded(t *testing.T) {
	s := serve(t, ratelimit.NewLocal(), []ratelimit.Rule{perCaller, perProduct})
	a := s.get(t, secret, "1", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, `"caller";q=2;w=60, "product";q=3;w=90`, a.header.Get("RateLimit-Policy"))
	require.Equal(t, `"caller";r=1;t=30, "product";r=2;t=30`, a.header.Get("RateLimit"))
	require.Equal(t, http.StatusOK, s.get(t, secret, "1", "").status)

	a = s.get(t, secret, "1", "")
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, `"caller";r=0;t=60`, a.header.Get("RateLimit"), "no other identity was charged")
	require.GreaterOrEqual(t, a.header.Get("Retry-After"), "30")
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var p struct {
		Type     string
		Status   int
		Violated []string `json:"violated-policies"`
		After    int64    `json:"retry_after_ms"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", p.Type)
	require.Equal(t, []string{"caller"}, p.Violated)
	require.Greater(t, p.After, int64(29_000))
	require.LessOrEqual(t, p.After, int64(45_000))
	require.NotContains(t, a.body, secret)

	require.Equal(t, http.StatusOK, s.get(t, "other", "1", "").status)
	require.Contains(t, s.get(t, "third", "1", "").body, `"violated-policies":["product"]`)
	require.Equal(t, http.StatusOK, s.get(t, "third", "2", "").status)
	require.EqualValues(t, 4, s.served.Load())
}

// A compressing middleware that has said so before compresses the refusal, too. No CDN may keep it, though it keeps all else of the site.
func TestRefusalLeavesTheHeaderOfOuterMiddleware(t *testing.T) {
	refuse := ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{{
		Policy: ratelimit.Policy{Name: "caller", Quota: 1, Window: time.Hour},
		Of:     func(*http.Request) (string, error) { return "", nil },
	}})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("CDN-Cache-Control", "max-age=60")
	refuse.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	require.Empty(t, w.Header().Get("CDN-Cache-Control"))
}

func TestRetryIsNotChargedTwice(t *testing.T) {
	s := serve(t, ratelimit.NewLocal(), []ratelimit.Rule{perCaller, perProduct})
	for _, key := range []string{"one", "one", "two", "two"} {
		require.Equal(t, http.StatusOK, s.get(t, secret, "1", key).status)
	}
	a := s.get(t, secret, "1", "three")
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, http.StatusOK, s.get(t, "other", "1", "one").status, "the same key of another caller is another request")
	require.Equal(t, http.StatusTooManyRequests, s.get(t, "third", "1", "one").status, "it was charged, and to the product as well")
}

func TestRequestID(t *testing.T) {
	s := serve(t, ratelimit.NewLocal(), []ratelimit.Rule{perCaller},
		ratelimit.WithRequestID(func(r *http.Request) string { return r.URL.Query().Get("id") }))
	for range 4 {
		require.Equal(t, http.StatusOK, s.get(t, secret, "1", "").status)
	}
	require.Equal(t, http.StatusTooManyRequests, s.get(t, secret, "1", "").status)
}

func TestWithoutIdentity(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"empty":     {nil, http.StatusBadRequest, "#invalid-key"},
		"error":     {errors.New(secret), http.StatusBadRequest, "#invalid-key"},
		"too large": {&http.MaxBytesError{}, http.StatusRequestEntityTooLarge, "#body-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			rule := perCaller
			rule.Of = func(*http.Request) (string, error) { return "", test.err }
			s := serve(t, ratelimit.NewLocal(), []ratelimit.Rule{rule})
			a := s.get(t, "", "", "")
			require.Equal(t, test.status, a.status)
			require.Equal(t, `"caller";q=2;w=60`, a.header.Get("RateLimit-Policy"))
			require.Contains(t, a.body, test.kind)
			require.NotContains(t, a.body, secret)
			require.Zero(t, s.served.Load())
		})
	}
	_, err := ratelimit.Take(t.Context(), ratelimit.NewLocal(), []ratelimit.Charge{{Policy: perCaller.Policy}}, "")
	require.ErrorIs(t, err, ratelimit.ErrIdentity)
}

// away is a limiter that is unreachable.
type away struct{}

func (away) Take(context.Context, ratelimit.Policy, string, string) (ratelimit.Result, error) {
	return ratelimit.Result{}, errors.New("away")
}

func TestLimiterAway(t *testing.T) {
	s := serve(t, away{}, []ratelimit.Rule{perCaller})
	a := s.get(t, secret, "1", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, `"caller";q=2;w=60`, a.header.Get("RateLimit-Policy"))
	require.Empty(t, a.header.Get("RateLimit"))

	s = serve(t, away{}, []ratelimit.Rule{perCaller}, ratelimit.WithFailClosed())
	a = s.get(t, secret, "1", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.body, "#backend-unavailable")
	require.Equal(t, `"caller";q=2;w=60`, a.header.Get("RateLimit-Policy"))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Zero(t, s.served.Load())

	s = serve(t, &goes{Limiter: ratelimit.NewLocal()}, []ratelimit.Rule{perCaller, perProduct}, ratelimit.WithFailClosed())
	a = s.get(t, secret, "1", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, `"caller";q=2;w=60, "product";q=3;w=90`, a.header.Get("RateLimit-Policy"))
	require.Equal(t, `"caller";r=1;t=30`, a.header.Get("RateLimit"), "what it answered before")
}

// goes is a limiter that becomes unreachable after one charge.
type goes struct {
	ratelimit.Limiter
	gone bool
}

func (g *goes) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	if g.gone {
		return ratelimit.Result{}, errors.New("away")
	}
	g.gone = true
	return g.Limiter.Take(ctx, p, id, request)
}

// A client that disconnects while the limiter is unreachable does not evade it.
func TestLimiterAwayAndClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header.Set("Authorization", secret)
	limits := ratelimit.New(away{}, []ratelimit.Rule{perCaller}, ratelimit.WithFailClosed())
	w := httptest.NewRecorder()
	limits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("admitted") })).ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// A limit for all routes and one for a single route: neither overwrites the header fields of the other.
func TestChainedLimitsSetBothHeaders(t *testing.T) {
	all, route := perCaller, perProduct
	all.Policy.Name, route.Policy.Name = "all", "route"
	h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, rule := range []ratelimit.Rule{route, all} {
		h = ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{rule})(h)
	}
	s := &limited{Server: httptest.NewServer(h)}
	defer s.Close()
	a := s.get(t, secret, "1", "")
	require.Equal(t, []string{`"all";q=2;w=60`, `"route";q=3;w=90`}, a.header.Values("RateLimit-Policy"))
	require.Equal(t, []string{`"all";r=1;t=30`, `"route";r=2;t=30`}, a.header.Values("RateLimit"))

	a = s.get(t, secret, "", "") // which the second one refuses
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Len(t, a.header.Values("RateLimit-Policy"), 2)
	require.Equal(t, []string{`"all";r=0;t=60`}, a.header.Values("RateLimit"))
}

// spy records what a limiter sees.
type spy struct {
	ratelimit.Limiter
	seen []string
}

func (s *spy) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	s.seen = append(s.seen, id, request)
	return s.Limiter.Take(ctx, p, id, request)
}

func TestLimiterSeesNoSecrets(t *testing.T) {
	l := &spy{Limiter: ratelimit.NewLocal()}
	s := serve(t, l, []ratelimit.Rule{perCaller})
	require.Equal(t, http.StatusOK, s.get(t, strings.Repeat(secret, 100), "1", secret).status)
	require.Len(t, l.seen, 2)
	for _, name := range l.seen {
		require.Regexp(t, `^[0-9a-f]{32}$`, name)
	}
}

func TestMistakesPanic(t *testing.T) {
	for _, p := range []ratelimit.Policy{
		{Quota: 1, Window: 1}, {Name: "a b", Quota: 1, Window: 1}, {Name: "a", Window: 1}, {Name: "a", Quota: 1}, {Name: "a", Quota: 1, Window: 1, Burst: -1},
	} {
		require.Panics(t, func() { ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{{Policy: p, Of: caller}}) }, p)
	}
	rules := []ratelimit.Rule{perCaller}
	for want, mistake := range map[string]func(){
		"ratelimit: policy caller: Of is nil: want a function": func() { ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{{Policy: perCaller.Policy}}) },
		"ratelimit: New needs a Limiter":                       func() { ratelimit.New(nil, nil) },
		"ratelimit: New: no rules: nothing would be limited":   func() { ratelimit.New(ratelimit.NewLocal(), nil) },
		"ratelimit: New: an option is nil":                     func() { ratelimit.New(ratelimit.NewLocal(), rules, nil) },
		"ratelimit: the handler is nil":                        func() { ratelimit.New(ratelimit.NewLocal(), rules)(nil) },
		"ratelimit: WithRequestID(nil): want a function":       func() { ratelimit.WithRequestID(nil) },
		"ratelimit: NewLocal: an option is nil":                func() { ratelimit.NewLocal(nil) },
		// A request with an Idempotency-Key that the first had charged would pass the second as its own retry.
		"ratelimit: two rules have a policy caller: want a name for each": func() {
			ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{perCaller, perProduct, perCaller})
		},
	} {
		require.PanicsWithValue(t, want, mistake)
	}
}

// A policy whose times do not fit is refused, instead of one that admits or refuses everything. Ten years fit.
func TestPolicyOfTooLongATimeIsRefused(t *testing.T) {
	const tenYears = 87_600 * time.Hour
	for _, p := range []ratelimit.Policy{
		{Name: "a", Quota: 1, Window: math.MaxInt64},
		{Name: "a", Quota: 1, Window: tenYears + 1},
		{Name: "a", Quota: 1, Window: tenYears, Burst: 2},
		{Name: "a", Quota: 1, Window: time.Hour, Burst: math.MaxInt32},
	} {
		require.ErrorContains(t, p.Check(), "want a window, and a Burst that refills, of at most 87600 hours (ten years)", p)
	}
	p := ratelimit.Policy{Name: "a", Quota: 3, Window: tenYears}
	require.NoError(t, p.Check())
	l := ratelimit.NewLocal()
	for range 3 {
		r, err := l.Take(t.Context(), p, "a", "")
		require.NoError(t, err)
		require.True(t, r.Allowed)
	}
	r, err := l.Take(t.Context(), p, "a", "")
	require.NoError(t, err)
	require.False(t, r.Allowed)
	require.InEpsilon(t, tenYears/3, r.RetryAfter, 0.01)
	require.InEpsilon(t, tenYears, r.ResetAfter, 0.01)
}
