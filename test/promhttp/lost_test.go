package promhttp_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// losses are what a handler may have done to its response when its lock is lost, and what the client is to get.
var losses = map[string]struct {
	handler http.HandlerFunc
	status  int
	own     bool // the client gets what the handler wrote, else what the guard answers
}{
	"nothing written": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", "x")
		w.Header().Set("Content-Length", "1")
	}, http.StatusServiceUnavailable, false},
	"early hints":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }, http.StatusServiceUnavailable, false},
	"body only":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }, http.StatusOK, true},
	"copied by file": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("done")) }, http.StatusOK, true},
	"all written": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x-own")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "done")
	}, http.StatusCreated, true},
}

// ownPage is a responder with a body of its own.
func ownPage(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	w.WriteHeader(status)
	fmt.Fprint(w, "my page")
}

// TestLostBehindPromhttp: promhttp's writer counts, and says what it wraps, so the guard knows what has been written.
func TestLostBehindPromhttp(t *testing.T) {
	for name, loss := range losses {
		for answer, opts := range map[string][]httpguard.Option{
			"#lease-lost": nil, "my page": {httpguard.WithResponder(ownPage)},
		} {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, HTTP/2 %v", name, answer, http2), func(t *testing.T) {
					t.Parallel()
					resp, body, logged := losing(t, http2, loss.handler, opts...)
					require.Equal(t, loss.status, resp.StatusCode)
					require.Empty(t, logged)
					if loss.own {
						require.Equal(t, "done", body, "no second body")
						return
					}
					require.Contains(t, body, answer)
					if opts == nil {
						require.Empty(t, resp.Header.Get("ETag"))
					}
				})
			}
		}
	}
}

// losing runs a request whose lock is lost before handler gets to work, and returns what came of it and what the server
// logged.
func losing(t *testing.T, http2 bool, handler http.HandlerFunc, opts ...httpguard.Option) (*http.Response, string, string) {
	t.Helper()
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
	guard := httpguard.New(l, "product", httpguard.Query("id"), opts...)
	s := httptest.NewUnstartedServer(promhttp.InstrumentHandlerResponseSize(
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "size"}, nil),
		guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			faults.Lose("product", "1000")
			<-r.Context().Done()
			handler(w, r)
		}))))
	var logged strings.Builder // read after Close, when nobody logs
	s.Config.ErrorLog = log.New(&logged, "", 0)
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	resp, err := s.Client().Get(s.URL + "?id=1000")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	s.Close()
	return resp, string(body), logged.String()
}
