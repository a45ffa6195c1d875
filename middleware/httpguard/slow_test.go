package httpguard_test

import (
	"bytes"
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
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// slowly sends a body of which the rest never comes, unless the test writes it.
func slowly(s *httptest.Server) (rest *io.PipeWriter, answered <-chan answer) {
	body, rest := io.Pipe()
	answers := make(chan answer, 1)
	go func() {
		a, _ := do(s, http.MethodPost, body)
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
	overBoth(t, func(t *testing.T, http2 bool) {
		const clients = 50
		l := wllocktest.New(t)
		h := guarded(l, reading)
		var arrived atomic.Int32
		s := start(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			h.ServeHTTP(w, r)
		}))
		rests, answers := [clients]*io.PipeWriter{}, [clients]<-chan answer{}
		for i := range clients {
			rests[i], answers[i] = slowly(s)
		}
		require.Eventually(t, func() bool { return arrived.Load() == clients }, 30*time.Second, time.Millisecond)

		require.Equal(t, "{}", send(t, s, http.MethodPost, strings.NewReader("{}")).body) // while all others still send
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
				a := send(t, s, http.MethodPost, body)
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
	inner := httpguard.New(l, "inner", byQuery)(http.HandlerFunc(reading))
	outer := httpguard.New(l, "outer", byQuery, httpguard.WithBodyBuffer(int64(len(long))))(inner)
	w := httptest.NewRecorder()
	outer.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/?id=1", strings.NewReader(long)))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, len(long), w.Body.Len())
}

// Somebody who asked for it reads under the lock. A client that sends nothing more keeps it until the hold ends, not for longer.
func TestBodyReadUnderALockThatEnds(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, r *http.Request){
		"read": func(t *testing.T, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
		},
		"JSON and again": func(t *testing.T, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			_, err := io.Copy(io.Discard, r.Body)
			assert.ErrorIs(t, err, wllock.ErrLockTimeMax)
		},
		"close": func(_ *testing.T, r *http.Request) {
			_ = r.Body.Close() // net/http reads what is left of a short body
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				l := wllocktest.New(t)
				s := start(t, http2, guarded(l, func(_ http.ResponseWriter, r *http.Request) { read(t, r) },
					httpguard.WithoutBodyBuffer(), httpguard.WithCallOptions(wllock.WithLockTimeMax(50*time.Millisecond))))
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
	overBoth(t, func(t *testing.T, http2 bool) {
		h := guarded(wllocktest.New(t), func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			<-r.Context().Done()
			time.Sleep(10 * time.Millisecond) // a deadline would be seen by now
		}, httpguard.WithoutBodyBuffer(), httpguard.WithCallOptions(wllock.WithLockTimeMax(time.Second)))
		s := start(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			assert.NoError(t, r.Context().Err())
		}))
		for range 2 {
			send(t, s, http.MethodPost, strings.NewReader("{}")).isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
		}
	})
}

// A client that leaves while it sends gets no answer, and nothing is left of it.
func TestClientLeavesWhileItSends(t *testing.T) {
	l := wllocktest.New(t)
	rest, answered := slowly(start(t, false, guarded(l, never(t))))
	_ = rest.CloseWithError(errors.New("gone"))
	require.Zero(t, (<-answered).status)
	require.Zero(t, l.Stats().Total.Held)
}

// An honest order is answered as soon as if nobody sent slowly.
func TestThousandSlowClients(t *testing.T) {
	testscope.Long(t, "measures")
	overBoth(t, func(t *testing.T, http2 bool) {
		const clients = 1000
		s := start(t, http2, guarded(wllocktest.New(t), reading))
		longest := func(d time.Duration) (longest time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				begun := time.Now()
				a := send(t, s, http.MethodPost, strings.NewReader("{}"))
				longest = max(longest, time.Since(begun))
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
		room := 50 * time.Millisecond
		if race.Enabled { // its work for a thousand goroutines counts, too
			room = time.Second / 2
		}
		testscope.InTime(t, beside, alone+room, "an honest order")
		sending.Wait()
	})
}
