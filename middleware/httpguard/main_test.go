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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is the key in these tests: no response may contain it.
const secret = "s3cret-key"

// byPath takes the key from the last part of the path of mounted.
var byPath = httpguard.PathValue("id")

// serve runs handler behind a guard at /orders/{id} of a real server.
func serve(t testing.TB, l *wllock.Locker, key httpguard.KeyFunc, h http.HandlerFunc, opts ...httpguard.Option) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httpguard.New(l, "product", key, opts...)(h))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(t testing.TB, s *httptest.Server) answer { return send(t, s, http.MethodGet, "") }

func send(t testing.TB, s *httptest.Server, method, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.URL+"/orders/"+secret, strings.NewReader(body))
	require.NoError(t, err)
	return do(t, s, r)
}

func do(t testing.TB, s *httptest.Server, r *http.Request) answer {
	t.Helper()
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// isProblem checks an answer against its row of the table.
func (a answer) isProblem(t testing.TB, status int, kind string, retry bool) {
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
		return
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.Positive(t, seconds)
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

func never(t testing.TB) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler was run without the lock") }
}
