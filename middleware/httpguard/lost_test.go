package httpguard_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// losing runs a request whose lock is lost before handler starts to work, and returns the response and the server's log.
func losing(t *testing.T, http2 bool, wrap func(http.ResponseWriter) (http.ResponseWriter, func()), handler http.HandlerFunc,
	opts ...httpguard.Option) (answer, string) {
	t.Helper()
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
	var runs atomic.Int32
	guarded := httpguard.New(l, "product", httpguard.Query("id"), opts...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		faults.Lose("product", secret)
		<-r.Context().Done()
		require.ErrorIs(t, context.Cause(r.Context()), wllock.ErrLeaseLost)
		handler(w, r)
	}))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, end := wrap(w)
		guarded.ServeHTTP(w, r)
		end()
	}))
	var logged logs
	s.Config.ErrorLog = log.New(&logged, "", 0)
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"?id="+secret, nil)
	require.NoError(t, err)
	a := do(t, s, r)
	require.EqualValues(t, 1, runs.Load(), "the handler is not run again")
	isFree(t, l)
	return a, logged.String()
}

// logs is a strings.Builder that several goroutines may use.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// overEach runs a test with each of the named writers, over HTTP/1 and HTTP/2.
func overEach(t *testing.T, names []string, test func(t *testing.T, name string, http2 bool)) {
	for _, name := range names {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				t.Parallel()
				test(t, name, http2)
			})
		}
	}
}

var everyWriter = slices.Sorted(maps.Keys(writers))

func TestLostBeforeAnythingWasWritten(t *testing.T) {
	overEach(t, everyWriter, func(t *testing.T, name string, http2 bool) {
		a, logged := losing(t, http2, writers[name], func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", "x")
			if name != "keeping" { // it gets them back as they were
				w.Header().Set("Content-Length", "1")
			}
		})
		require.Empty(t, logged)
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		if !slices.Contains(telling, name) { // only the status
			return
		}
		require.Empty(t, a.header.Get("ETag"))
		a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
	})
}

// An informational status is no response yet, though a wrapper may note it as one.
func TestLostAfterEarlyHints(t *testing.T) {
	overEach(t, append([]string{"plain", "optimist"}, telling...), func(t *testing.T, name string, http2 bool) {
		a, logged := losing(t, http2, writers[name], func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
		})
		require.Empty(t, logged)
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		if slices.Contains(telling, name) {
			a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
		}
	})
}

func TestLostAfterSomethingWasWritten(t *testing.T) {
	overEach(t, everyWriter, func(t *testing.T, name string, http2 bool) {
		a, logged := losing(t, http2, writers[name], func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x-own")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "done")
		})
		require.Equal(t, http.StatusCreated, a.status)
		require.Equal(t, "done", a.body)
		require.Equal(t, "text/x-own", a.header.Get("Content-Type"))
		if !slices.Contains(mute, name) {
			require.Empty(t, logged)
		}
	})
}

// Write alone begins a response too, and a wrapper may not see it.
func TestLostAfterABodyWithoutStatus(t *testing.T) {
	overEach(t, everyWriter, func(t *testing.T, name string, http2 bool) {
		if name == "buffering" { // see TestLostAfterABodyWasBuffered
			return
		}
		a, logged := losing(t, http2, writers[name], func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "done", a.body, "no second body")
		if !slices.Contains(mute, name) {
			require.Empty(t, logged)
		}
	})
}

// A body that is buffered while the header passes through is the handler's answer, whatever its status has become.
func TestLostAfterABodyWasBuffered(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		a, logged := losing(t, http2, writers["buffering"], func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
		require.Equal(t, "done\n", a.body, "no second body")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Empty(t, logged)
	}
}

// ownPage is a responder that writes its body in pieces and sets a length.
func ownPage(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	w.Header().Set("Content-Type", "text/x-own")
	w.Header().Set("Content-Length", "7")
	w.WriteHeader(status)
	w.WriteHeader(http.StatusTeapot) // too late
	fmt.Fprint(w, "my ")
	fmt.Fprint(w, "page")
}

func TestLostIsAnsweredByTheResponder(t *testing.T) {
	overEach(t, everyWriter, func(t *testing.T, name string, http2 bool) {
		a, logged := losing(t, http2, writers[name], func(http.ResponseWriter, *http.Request) {}, httpguard.WithResponder(ownPage))
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		if slices.Contains(telling, name) {
			require.Equal(t, "my page", a.body)
			require.Equal(t, "text/x-own", a.header.Get("Content-Type"))
		}
		if name != "as it is" {
			require.Empty(t, logged)
		}
	})
}

// The responder's page must not become a second body either.
func TestLostAfterSomethingWasWrittenIsNotAnswered(t *testing.T) {
	overEach(t, everyWriter, func(t *testing.T, name string, http2 bool) {
		a, _ := losing(t, http2, writers[name], func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x-done")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "done")
		}, httpguard.WithResponder(ownPage))
		require.Equal(t, http.StatusCreated, a.status)
		require.Equal(t, "done", a.body)
		require.Equal(t, "text/x-done", a.header.Get("Content-Type"))
	})
}

func TestLostAfterHijack(t *testing.T) {
	a, logged := losing(t, false, writers["as it is"], func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		fmt.Fprint(conn, "HTTP/1.1 418 mine\r\nContent-Length: 0\r\n\r\n")
		conn.Close()
	})
	require.Equal(t, http.StatusTeapot, a.status)
	require.Empty(t, logged)
}

func TestHeldForTooLong(t *testing.T) {
	for name, written := range map[string]string{"nothing written": "", "written": "done"} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			s := serve(t, l, byPath, func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				require.ErrorIs(t, context.Cause(r.Context()), wllock.ErrLockTimeMax)
				fmt.Fprint(&skipEmpty{w}, written)
			}, httpguard.WithCallOptions(wllock.WithLockTimeMax(10*time.Millisecond)))
			a := get(t, s)
			isFree(t, l)
			if written == "" {
				a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
				return
			}
			require.Equal(t, http.StatusOK, a.status)
			require.Equal(t, written, a.body)
		})
	}
}

// skipEmpty does not begin a response with an empty Write.
type skipEmpty struct{ w http.ResponseWriter }

func (s *skipEmpty) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return s.w.Write(b)
}

// Close of the Locker has timed out: the handler's context ends, and an empty response must not be sent as 200. Nor may the
// response suggest a retry, as for a request that was not admitted: the work may have been done.
func TestClosedUnderTheHandler(t *testing.T) {
	l := wllocktest.New(t)
	inside := make(chan struct{})
	s := serve(t, l, byPath, func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	})
	go func() {
		<-inside
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Close(ctx)
	}()
	a := get(t, s)
	a.isProblem(t, http.StatusServiceUnavailable, "shutting-down", false)
	require.NotContains(t, a.body, "Try again")
}
