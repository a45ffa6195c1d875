package httpguard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// overBoth runs a test over HTTP/1.1 and HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, start func(http.Handler) *httptest.Server)) {
	t.Run("HTTP/1.1", func(t *testing.T) {
		test(t, func(h http.Handler) *httptest.Server {
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			return s
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		test(t, func(h http.Handler) *httptest.Server { return secure(t, h) })
	})
}

// order sends a body to a guard whose key is Query("id").
func order(s *httptest.Server, body io.Reader) (answer, error) {
	resp, err := s.Client().Post(s.URL+"?id="+secret, "text/plain", body)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// slowly sends a body of which the rest never comes, unless the test writes it.
func slowly(s *httptest.Server) (rest *io.PipeWriter, answered <-chan answer) {
	body, rest := io.Pipe()
	answers := make(chan answer, 1)
	go func() {
		a, _ := order(s, body)
		answers <- a
	}()
	_, _ = rest.Write([]byte("{"))
	return rest, answers
}

// reading is a handler that reads its body.
func reading(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		_, _ = w.Write(b)
	}
}

func TestSlowBodiesKeepNobodyWaiting(t *testing.T) {
	overBoth(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		const clients = 50
		l := wllocktest.New(t)
		guarded := httpguard.New(l, "product", httpguard.Query("id"))(http.HandlerFunc(reading))
		var arrived atomic.Int32
		s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			guarded.ServeHTTP(w, r)
		}))
		rests, answers := [clients]*io.PipeWriter{}, [clients]<-chan answer{}
		for i := range clients {
			rests[i], answers[i] = slowly(s)
		}
		require.Eventually(t, func() bool { return arrived.Load() == clients }, 30*time.Second, time.Millisecond)

		a, err := order(s, strings.NewReader("{}")) // while all others still send
		require.NoError(t, err)
		require.Equal(t, "{}", a.body)
		require.Zero(t, l.Stats().Total.Held+l.Stats().Total.Waiting)

		for i, rest := range rests {
			_, _ = rest.Write([]byte("}"))
			require.NoError(t, rest.Close())
			require.Equal(t, "{}", (<-answers[i]).body)
		}
	})
}

// defaultBuffer is what a guard reads of a body before the queue.
const defaultBuffer = 64 << 10

// A key function that reads more than the default has asked for that.
func TestLongestBody(t *testing.T) {
	long := `{"id": "` + secret + `", "text": "` + strings.Repeat("x", 2*defaultBuffer) + `"}`
	byBody := httpguard.BodyJSON("id", 3*defaultBuffer)
	for name, test := range map[string]struct {
		key    httpguard.KeyFunc
		opts   []httpguard.Option
		body   string
		status int
	}{
		"default":              {key: byPath, body: long[:defaultBuffer], status: http.StatusOK},
		"one byte more":        {key: byPath, body: long[:defaultBuffer+1], status: http.StatusRequestEntityTooLarge},
		"BodyJSON":             {key: byBody, body: long, status: http.StatusOK},
		"BodyJSON, longer":     {key: httpguard.BodyJSON("id", defaultBuffer), body: long, status: http.StatusRequestEntityTooLarge},
		"BodyJSON twice":       {key: httpguard.Join(byBody, byBody), body: long, status: http.StatusOK},
		"BodyJSON and a limit": {key: byBody, opts: []httpguard.Option{httpguard.WithBodyBuffer(defaultBuffer)}, body: long, status: http.StatusRequestEntityTooLarge},
		"a limit":              {key: byPath, opts: []httpguard.Option{httpguard.WithBodyBuffer(3 * defaultBuffer)}, body: long, status: http.StatusOK},
		"a limit, longer":      {key: byPath, opts: []httpguard.Option{httpguard.WithBodyBuffer(100)}, body: long[:101], status: http.StatusRequestEntityTooLarge},
		"WithoutBodyBuffer":    {key: byPath, opts: []httpguard.Option{httpguard.WithoutBodyBuffer()}, body: long, status: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, wllocktest.New(t), test.key, reading, test.opts...)
			for _, body := range []io.Reader{strings.NewReader(test.body), chunks{strings.NewReader(test.body)}} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders/"+secret, body)
				require.NoError(t, err)
				a := do(t, s, r)
				require.Equal(t, test.status, a.status)
				if a.status == http.StatusOK {
					require.True(t, test.body == a.body, "%d of %d bytes", len(a.body), len(test.body))
				}
			}
		})
	}
}

// A body is buffered once, however many guards and key functions want it.
func TestInnerGuardTakesTheBufferedBody(t *testing.T) {
	l := wllocktest.New(t)
	long := strings.Repeat("x", 2*defaultBuffer)
	inner := httpguard.New(l, "inner", httpguard.Query("id"))(http.HandlerFunc(reading))
	outer := httpguard.New(l, "outer", httpguard.Query("id"), httpguard.WithBodyBuffer(int64(len(long))))(inner)
	w := httptest.NewRecorder()
	outer.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/?id=1", strings.NewReader(long)))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, len(long), w.Body.Len())
}

// Somebody who asked for it reads under the lock. A client that sends nothing more keeps it until the hold ends, not for longer.
func TestBodyReadUnderALockThatEnds(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"read": func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.ErrorIs(r.Context().Value(testKey{}).(*testing.T), err, wllock.ErrLockTimeMax)
		},
		"JSON and again": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			_, err := io.Copy(io.Discard, r.Body)
			assert.ErrorIs(r.Context().Value(testKey{}).(*testing.T), err, wllock.ErrLockTimeMax)
		},
		"close": func(_ http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close() // net/http reads what is left of a short body
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
				l := wllocktest.New(t)
				guarded := httpguard.New(l, "product", httpguard.Query("id"), httpguard.WithoutBodyBuffer(),
					httpguard.WithCallOptions(wllock.WithLockTimeMax(50*time.Millisecond)))(handler)
				s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					guarded.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), testKey{}, t)))
				}))
				rest, answered := slowly(s)
				isFree(t, l)
				a := <-answered
				rest.Close()
				if a.status != 0 || name != "close" { // the client's transport may notice first that nobody reads its body
					a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
				}
			})
		})
	}
}

type testKey struct{}

// Over HTTP/1.1, net/http reads what is left of the body before it sends the header.
func TestAnswerUnderALockThatEnds(t *testing.T) {
	l := wllocktest.New(t)
	answered := make(chan struct{})
	s := serve(t, l, byPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100<<10))
		close(answered)
	}, httpguard.WithoutBodyBuffer(), httpguard.WithCallOptions(wllock.WithLockTimeMax(50*time.Millisecond)))
	body, rest := io.Pipe()
	defer rest.Close()
	go func() {
		resp, err := s.Client().Post(s.URL+"/orders/"+secret, "text/plain", body)
		if err == nil {
			resp.Body.Close()
		}
	}()
	_, _ = rest.Write([]byte("{"))
	<-answered
	isFree(t, l)
}

// As soon as the body has been read, the server reads from the connection to look for a disconnect: the end of the hold leaves it alone.
func TestLostAfterTheBodyWasRead(t *testing.T) {
	overBoth(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		l := wllocktest.New(t)
		guarded := httpguard.New(l, "product", httpguard.Query("id"), httpguard.WithoutBodyBuffer(),
			httpguard.WithCallOptions(wllock.WithLockTimeMax(time.Second)))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			<-r.Context().Done()
			time.Sleep(10 * time.Millisecond) // a deadline would be seen by now
		}))
		s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guarded.ServeHTTP(w, r)
			assert.NoError(t, r.Context().Err())
		}))
		for range 2 {
			a, err := order(s, strings.NewReader("{}"))
			require.NoError(t, err)
			a.isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
		}
	})
}

// A client that leaves while it sends gets no answer, and nothing is left of it.
func TestClientLeavesWhileItSends(t *testing.T) {
	l := wllocktest.New(t)
	s := httptest.NewServer(httpguard.New(l, "product", httpguard.Query("id"))(never(t)))
	defer s.Close()
	rest, answered := slowly(s)
	_ = rest.CloseWithError(errors.New("gone"))
	require.Zero(t, (<-answered).status)
	require.Zero(t, l.Stats().Total.Held)
}

// An honest order is answered as soon as if nobody sent slowly.
func TestThousandSlowClients(t *testing.T) {
	testscope.Long(t, "measures")
	overBoth(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		const clients = 1000
		l := wllocktest.New(t)
		s := start(httpguard.New(l, "product", httpguard.Query("id"))(http.HandlerFunc(reading)))
		longest := func(d time.Duration) (longest time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				begun := time.Now()
				a, err := order(s, strings.NewReader("{}"))
				longest = max(longest, time.Since(begun))
				require.NoError(t, err)
				require.Equal(t, "{}", a.body)
			}
			return longest
		}
		alone := longest(time.Second)
		var sending sync.WaitGroup
		for range clients {
			rest, answered := slowly(s)
			sending.Go(func() {
				for range 10 { // another byte each tenth of the time
					time.Sleep(testscope.Scale(3*time.Second, 30*time.Second) / 10)
					_, _ = rest.Write([]byte(" "))
				}
				rest.Close()
				<-answered
			})
		}
		beside := longest(testscope.Scale(3*time.Second, 30*time.Second))
		t.Logf("an honest order took %v at most alone, and %v beside %d slow clients", alone, beside, clients)
		testscope.InTime(t, beside, alone+50*time.Millisecond, "an honest order")
		sending.Wait()
	})
}
