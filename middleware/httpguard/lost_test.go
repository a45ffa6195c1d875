package httpguard_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	h := guarded(l, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		faults.Lose("product", secret)
		<-r.Context().Done()
		require.ErrorIs(t, context.Cause(r.Context()), wllock.ErrLeaseLost)
		handler(w, r)
	}, opts...)
	var logged logs
	s := start(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, end := wrap(w)
		h.ServeHTTP(w, r)
		end()
	}), func(s *http.Server) { s.ErrorLog = log.New(&logged, "", 0) })
	a := get(t, s)
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

var everyWriter = slices.Sorted(maps.Keys(writers))

// The lock is lost: what the handler has written is the answer, in whatever way it began, and no second body follows. If it has written nothing, the
// guard answers, through every writer.
func TestLost(t *testing.T) {
	written := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x-done")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "done")
	}
	page := []httpguard.Option{httpguard.WithResponder(ownPage)}
	for what, test := range map[string]struct {
		handler http.HandlerFunc
		opts    []httpguard.Option
		writers []string
		status  int
		body    string   // "": a problem, without what describes the handler's answer
		typ     string   // "": any
		sees    []string // the writers through which all of that is seen; else the status alone
		loud    []string // those behind which something may be written twice, which net/http logs
	}{
		"before anything was written": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", "x")
			if _, keeps := w.(*keeping); !keeps { // it gets them back as they were
				w.Header().Set("Content-Length", "1")
			}
		}, nil, everyWriter, http.StatusServiceUnavailable, "", "", telling, nil},
		// An informational status is no response yet, though a wrapper may note it as one.
		"after early hints": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }, nil,
			append([]string{"plain", "optimist"}, telling...), http.StatusServiceUnavailable, "", "", telling, nil},
		"after something was written": {written, nil, everyWriter, http.StatusCreated, "done", "text/x-done", everyWriter, mute},
		// Write alone begins a response too, and a wrapper may not see it.
		"after a body without status": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }, nil,
			slices.DeleteFunc(slices.Clone(everyWriter), func(name string) bool { return name == "buffering" }), // see TestLostAfterABodyWasBuffered
			http.StatusOK, "done", "", everyWriter, mute},
		"before anything was written, own page": {func(http.ResponseWriter, *http.Request) {}, page, everyWriter,
			http.StatusServiceUnavailable, "my page", "text/x-own", telling, []string{"as it is"}},
		// The responder's page must not become a second body either.
		"after something was written, own page": {written, page, everyWriter, http.StatusCreated, "done", "text/x-done", everyWriter, everyWriter},
	} {
		for _, name := range test.writers {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s, HTTP/2 %v", what, name, http2), func(t *testing.T) {
					t.Parallel()
					a, logged := losing(t, http2, writers[name], test.handler, test.opts...)
					require.Equal(t, test.status, a.status)
					if !slices.Contains(test.loud, name) {
						require.Empty(t, logged)
					}
					switch {
					case !slices.Contains(test.sees, name):
					case test.body == "":
						a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
						require.Empty(t, a.header.Get("ETag"))
					default:
						require.Equal(t, test.body, a.body, "no second body")
						require.Contains(t, a.header.Get("Content-Type"), test.typ)
					}
				})
			}
		}
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

// A body that is buffered while the header passes through is the handler's answer, whatever its status has become.
func TestLostAfterABodyWasBuffered(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		a, logged := losing(t, http2, writers["buffering"], func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
		require.Equal(t, "done\n", a.body, "no second body")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Empty(t, logged)
	}
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

// The handler stops with its context: an empty response must not be sent as 200. Nor may the answer suggest a retry, as for a request that was
// not admitted: the work may have been done. What the handler has written stays.
func TestLockEndsUnderTheHandler(t *testing.T) {
	for name, test := range ends {
		for _, written := range []string{"", "done"} {
			t.Run(fmt.Sprintf("%s, written %q", name, written), func(t *testing.T) {
				l, faults := ending(t, test.cause)
				a := get(t, serve(t, l, byPath, func(w http.ResponseWriter, r *http.Request) {
					test.end(l, faults)
					<-r.Context().Done()
					assert.ErrorIs(t, context.Cause(r.Context()), test.cause)
					if written != "" {
						fmt.Fprint(w, written)
					}
				}, httpguard.WithCallOptions(test.opts...)))
				if test.cause != wllock.ErrClosed {
					isFree(t, l)
				}
				if written == "" {
					a.isProblem(t, http.StatusServiceUnavailable, test.kind, false)
					require.NotContains(t, a.body, "Try again")
					return
				}
				require.Equal(t, http.StatusOK, a.status)
				require.Equal(t, written, a.body)
			})
		}
	}
}
