package httpguard_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// writeTimeout is that of the server in these tests; a quarter of it is kept for the handler.
const writeTimeout = 2 * time.Second

// served sends h a request as a server with a WriteTimeout does, and returns the answer and how long it took.
func served(t testing.TB, h http.Handler, body io.Reader) (answer, time.Duration) {
	ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: writeTimeout})
	w, begun := httptest.NewRecorder(), time.Now()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/?id="+secret, body))
	return answer{w.Code, w.Header(), w.Body.String()}, time.Since(begun)
}

// A wait that is longer than the server can answer is refused in time.
func TestWaitEndsBeforeTheWriteTimeout(t *testing.T) {
	byQuery := httpguard.Query("id")
	for name, guard := range map[string]func(l *wllock.Locker) func(http.Handler) http.Handler{
		"one": func(l *wllock.Locker) func(http.Handler) http.Handler { return httpguard.New(l, "product", byQuery) },
		"several": func(l *wllock.Locker) func(http.Handler) http.Handler {
			return httpguard.NewAll(l, func(*http.Request) ([]wllock.Resource, error) {
				return []wllock.Resource{{Name: "account", Key: "1"}, {Name: "product", Key: secret}}, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := wllocktest.New(t)
				wllocktest.Hold(t, l, "product", secret)
				a, took := served(t, guard(l)(never(t)), nil)
				a.isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
				require.Equal(t, writeTimeout*3/4, took)
				require.Zero(t, l.Stats().Total.Waiting)
			})
		})
	}
}

// All that are let in are answered before the server gives up.
func TestEveryOrderThatIsPlacedIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		h := httpguard.New(l, "product", httpguard.Query("id"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(600 * time.Millisecond)
		}))
		var mu sync.Mutex
		answers := map[int]int{}
		var clients sync.WaitGroup
		for range 10 {
			clients.Go(func() {
				a, took := served(t, h, nil)
				assert.Less(t, took, writeTimeout)
				mu.Lock()
				defer mu.Unlock()
				answers[a.status]++
			})
		}
		clients.Wait()
		require.Equal(t, map[int]int{http.StatusOK: 3, http.StatusTooManyRequests: 7}, answers)
	})
}

// The time counts from before the body, and for inner guards from that of the outer one.
func TestTimeBeforeTheQueueCounts(t *testing.T) {
	byQuery := httpguard.Query("id")
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		body, rest := io.Pipe()
		time.AfterFunc(writeTimeout*3/4, func() { rest.Close() })
		a, took := served(t, httpguard.New(l, "product", byQuery)(never(t)), body)
		a.isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
		require.Equal(t, writeTimeout*3/4, took)
	})
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		wllocktest.Hold(t, l, "inner", secret)
		inner := httpguard.New(l, "inner", byQuery)(never(t))
		a, took := served(t, httpguard.New(l, "outer", byQuery)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			inner.ServeHTTP(w, r)
		})), nil)
		a.isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
		require.Equal(t, writeTimeout*3/4, took)
	})
}

// Nothing of the bound is left for a handler that was let in, nor if the lock comes as the wait ends: either wins.
func TestHandlerIsNotEndedByTheBoundOfTheWait(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := wllocktest.New(t)
			lock, err := l.Acquire(t.Context(), "product", secret, wllock.WithLockTimeMax(0))
			require.NoError(t, err)
			time.AfterFunc(writeTimeout*3/4, func() { _ = lock.Release(t.Context()) })
			ran := false
			a, _ := served(t, httpguard.New(l, "product", httpguard.Query("id"))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ran = true
				time.Sleep(2 * writeTimeout)
				assert.NoError(t, r.Context().Err())
			})), nil)
			require.Equal(t, ran, a.status == http.StatusOK)
			require.True(t, ran || a.status == http.StatusTooManyRequests, a.status)
			isFree(t, l)
		})
	}
}

// Over a real server, the refusal arrives.
func TestRefusalBeforeTheWriteTimeoutArrives(t *testing.T) {
	testscope.Long(t, "lasts as long as a server's WriteTimeout")
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			wllocktest.Hold(t, l, "product", secret)
			s := httptest.NewUnstartedServer(httpguard.New(l, "product", httpguard.Query("id"))(never(t)))
			s.Config.WriteTimeout = writeTimeout
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if s.EnableHTTP2 = http2; http2 {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			a, err := order(s, strings.NewReader("{}"))
			require.NoError(t, err)
			a.isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
		})
	}
}
