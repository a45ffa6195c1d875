package httpguard_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is the key in these tests: no response may contain it.
const secret = "s3cret-key"

// byPath takes the key from the last part of the path, and byQuery from the query.
var byPath, byQuery = httpguard.PathValue("id"), httpguard.Query("id")

// start runs h on a server of HTTP/1.1 or HTTP/2.
func start(t testing.TB, http2 bool, h http.Handler, set ...func(*http.Server)) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	for _, f := range set {
		f(server.Config)
	}
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// overBoth runs a test over HTTP/1.1 and HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
}

// serve runs handler behind a guard at /orders/{id} of a real server.
func serve(t testing.TB, l *wllock.Locker, key httpguard.KeyFunc, h http.HandlerFunc, opts ...httpguard.Option) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httpguard.New(l, "product", key, opts...)(h))
	return start(t, false, mux)
}

// guarded is handler behind a guard that takes its key from the query.
func guarded(l *wllock.Locker, h http.HandlerFunc, opts ...httpguard.Option) http.Handler {
	return httpguard.New(l, "product", byQuery, opts...)(h)
}

// guardedByAll is handler behind a guard of the keys of both.
func guardedByAll(l *wllock.Locker, h http.HandlerFunc, opts ...httpguard.Option) http.Handler {
	return httpguard.NewAll(l, both, opts...)(h)
}

// both asks for the secret key and another one.
func both(*http.Request) ([]wllock.Resource, error) {
	return []wllock.Resource{{Name: "product", Key: secret}, {Name: "account", Key: "1"}}, nil
}

// withEach runs a test with a guard of one key and one of several.
func withEach(t *testing.T, test func(t *testing.T, guard func(*wllock.Locker, http.HandlerFunc, ...httpguard.Option) http.Handler)) {
	t.Run("one", func(t *testing.T) { test(t, guarded) })
	t.Run("several", func(t *testing.T) { test(t, guardedByAll) })
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(t testing.TB, s *httptest.Server) answer { return send(t, s, http.MethodGet, nil) }

func send(t testing.TB, s *httptest.Server, method string, body io.Reader) answer {
	t.Helper()
	a, err := do(s, method, body)
	require.NoError(t, err)
	return a
}

// do sends the key in the path and in the query.
func do(s *httptest.Server, method string, body io.Reader) (answer, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, s.URL+"/orders/"+secret+"?id="+secret, body)
	if err != nil {
		return answer{}, err
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// isProblem checks an answer against its row of the table, and returns its retry_after_ms. nil: there is none.
func (a answer) isProblem(t testing.TB, status int, kind string, retry bool) (millis *int64) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var p struct {
		Type, Title, Detail string
		Status              int
		RetryAfter          *int64 `json:"retry_after_ms"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	assert.True(t, strings.HasSuffix(p.Type, "#"+kind), p.Type)
	assert.Equal(t, status, p.Status)
	assert.Equal(t, http.StatusText(status), p.Title)
	assert.NotEmpty(t, p.Detail)
	assert.NotContains(t, a.body, secret)
	for _, values := range a.header {
		assert.NotContains(t, strings.Join(values, " "), secret)
	}
	if !retry {
		assert.Empty(t, a.header.Get("Retry-After"))
		assert.Nil(t, p.RetryAfter)
		return nil
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.Positive(t, seconds)
	return p.RetryAfter
}

// taken is a Locker whose lock is held.
func taken(t testing.TB, opts ...wllock.Option) *wllock.Locker {
	t.Helper()
	l := wllocktest.New(t, opts...)
	wllocktest.Hold(t, l, "product", secret)
	return l
}

// isFree checks that the lock can be acquired at once.
func isFree(t testing.TB, l *wllock.Locker) {
	t.Helper()
	require.NoError(t, l.Do(t.Context(), "product", secret, func(context.Context) error { return nil },
		wllock.WithWait(30*time.Second), wllock.WithCallThreshold(wllock.Unlimited)))
}

// waiting waits until n callers wait for locks.
func waiting(t testing.TB, l *wllock.Locker, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Stats().Total.Waiting == n }, 5*time.Second, 100*time.Microsecond)
}

// closeUnder closes l without waiting for its holders: their contexts end.
func closeUnder(l *wllock.Locker) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx) // says how many there were
}

func never(t testing.TB) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler was run without the lock") }
}
