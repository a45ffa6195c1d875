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
	withEach(t, func(t *testing.T, guard func(*wllock.Locker, http.HandlerFunc, ...httpguard.Option) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			l := taken(t)
			a, took := served(t, guard(l, never(t)), nil)
			a.isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
			require.Equal(t, writeTimeout*3/4, took)
			require.Zero(t, l.Stats().Total.Waiting)
		})
	})
}

// All that are let in are answered before the server gives up.
func TestEveryOrderThatIsPlacedIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wllocktest.New(t)
		h := guarded(l, func(http.ResponseWriter, *http.Request) { time.Sleep(600 * time.Millisecond) })
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
	synctest.Test(t, func(t *testing.T) {
		body, rest := io.Pipe()
		time.AfterFunc(writeTimeout*3/4, func() { rest.Close() })
		a, took := served(t, guarded(wllocktest.New(t), never(t)), body)
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
			a, _ := served(t, guarded(l, func(_ http.ResponseWriter, r *http.Request) {
				ran = true
				time.Sleep(2 * writeTimeout)
				assert.NoError(t, r.Context().Err())
			}), nil)
			require.Equal(t, ran, a.status == http.StatusOK)
			require.True(t, ran || a.status == http.StatusTooManyRequests, a.status)
			isFree(t, l)
		})
	}
}

// Over a real server, the refusal arrives.
func TestRefusalBeforeTheWriteTimeoutArrives(t *testing.T) {
	testscope.Long(t, "lasts as long as a server's WriteTimeout")
	overBoth(t, func(t *testing.T, http2 bool) {
		l := taken(t)
		s := start(t, http2, guarded(l, never(t)), func(s *http.Server) {
			s.WriteTimeout = writeTimeout
			s.ErrorLog = log.New(io.Discard, "", 0)
		})
		send(t, s, http.MethodPost, strings.NewReader("{}")).isProblem(t, http.StatusTooManyRequests, "wait-timeout", true)
	})
}
