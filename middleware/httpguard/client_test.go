package httpguard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// atOnce is how soon a client that disconnects must free its place.
const atOnce = 50 * time.Millisecond

// Over a raw connection, so that the server can only learn of it by the close.
func TestClientLeavesWhileWaiting(t *testing.T) {
	post := "POST /orders/" + secret + " HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"product_id\": 17}"
	for name, test := range map[string]struct {
		request string
		key     httpguard.KeyFunc
		opts    []httpguard.Option
	}{
		"GET":                {request: "GET /orders/" + secret + " HTTP/1.1\r\nHost: x\r\n\r\n", key: byPath},
		"POST":               {request: post, key: byPath},
		"POST, buffered":     {request: post, key: byPath, opts: []httpguard.Option{httpguard.WithBodyBuffer(1 << 10)}},
		"POST, key in body":  {request: post, key: httpguard.Join(httpguard.BodyJSON("product_id", 1<<10), byPath)},
		"POST, chunked body": {request: chunked, key: byPath, opts: []httpguard.Option{httpguard.WithBodyBuffer(1 << 10)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := taken(t)
			wllocktest.Hold(t, l, "product", "17:"+secret)
			s := serve(t, l, test.key, never(t), test.opts...)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			fmt.Fprint(conn, test.request)
			waiting(t, l, 1)

			conn.Close()
			left := time.Now()
			waiting(t, l, 0)
			took := time.Since(left)
			t.Logf("the place was free after %v", took.Round(time.Microsecond))
			testscope.InTime(t, took, atOnce, "leaving")
		})
	}
}

const chunked = "POST /orders/" + secret + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"

func TestHTTP2ClientLeavesWhileWaiting(t *testing.T) {
	l := taken(t)
	s := start(t, true, guarded(l, never(t), httpguard.WithoutBodyBuffer()))
	ctx, cancel := context.WithCancel(t.Context())
	// The body is never sent to its end, and yet, over HTTP/2, the server notices.
	body, end := io.Pipe()
	defer end.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"?id="+secret, body)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := s.Client().Do(r)
		if assert.ErrorIs(t, err, context.Canceled) {
			return
		}
		resp.Body.Close()
	})
	waiting(t, l, 1)
	cancel()
	left := time.Now()
	waiting(t, l, 0)
	testscope.InTime(t, time.Since(left), atOnce, "leaving")
	wg.Wait()
}

func TestHandlerGetsTheBufferedBody(t *testing.T) {
	const body = `{"product_id": 17, "pieces": 2}`
	for name, opts := range map[string][]httpguard.Option{
		"key": nil, "key and buffer": {httpguard.WithBodyBuffer(100)},
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			s := serve(t, l, httpguard.BodyJSON("product_id", 100), func(_ http.ResponseWriter, r *http.Request) {
				held, _ := wllock.HeldFrom(r.Context())
				assert.Equal(t, "test:product:17", held.Key())
				b, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, body, string(b))
				assert.NoError(t, r.Body.Close())
			}, opts...)
			require.Equal(t, http.StatusOK, send(t, s, http.MethodPost, strings.NewReader(body)).status)
		})
	}
}

func TestTruncatedBody(t *testing.T) {
	l := wllocktest.New(t)
	s := serve(t, l, byPath, never(t), httpguard.WithBodyBuffer(100))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, strings.Replace(chunked, "4\r\nbody", "zz\r\nbody", 1))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	answer{resp.StatusCode, resp.Header, string(b)}.isProblem(t, http.StatusBadRequest, "unreadable-body", false)
}
