package httpguard_test

import (
	"bufio"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

func TestResponseWriterIsNotWrapped(t *testing.T) {
	var outer, inner http.ResponseWriter
	h := guarded(wllocktest.New(t), func(w http.ResponseWriter, _ *http.Request) { inner = w })
	s := start(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = w
		h.ServeHTTP(w, r)
	}))
	require.Equal(t, http.StatusOK, get(t, s).status)
	require.Same(t, outer, inner)
}

// Server-sent events: each arrives while the handler runs and holds its lock.
func TestEventsPassThrough(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		l := wllocktest.New(t)
		next := make(chan struct{})
		s := start(t, http2, guarded(l, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				<-next
			}
		}))
		resp, err := s.Client().Get(s.URL + "?id=1")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http2, resp.ProtoMajor == 2)
		events := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := events.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			_, _ = events.ReadString('\n')
			require.EqualValues(t, 1, l.Stats().Total.Held)
			next <- struct{}{}
		}
		_, err = events.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestHijackPassesThrough(t *testing.T) {
	l := wllocktest.New(t)
	s := serve(t, l, byPath, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(conn, line)
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /orders/%s HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n", secret)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.EqualValues(t, 1, l.Stats().Total.Held)
	fmt.Fprint(conn, "hello\n")
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	isFree(t, l)
}

func TestResponseControllerPassesThrough(t *testing.T) {
	l := wllocktest.New(t)
	s := serve(t, l, byPath, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		assert.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		assert.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		assert.NoError(t, c.EnableFullDuplex())
		assert.NoError(t, c.Flush())
	})
	require.Equal(t, http.StatusOK, get(t, s).status)
}

// The server removes the temporary files of a form through the request it has made.
func TestFilesOfAFormAreRemoved(t *testing.T) {
	var file string
	mux := http.NewServeMux()
	mux.Handle("/upload", guarded(wllocktest.New(t), func(_ http.ResponseWriter, r *http.Request) {
		if !assert.NoError(t, r.ParseMultipartForm(0)) {
			return
		}
		f, err := r.MultipartForm.File["file"][0].Open()
		if !assert.NoError(t, err) {
			return
		}
		defer f.Close()
		file = f.(*os.File).Name()
	}, httpguard.WithoutBodyBuffer()))
	s := start(t, false, mux)
	var body strings.Builder
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "big")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 11<<20)) // more than net/http keeps in memory in any case
	require.NoError(t, err)
	require.NoError(t, form.Close())
	resp, err := s.Client().Post(s.URL+"/upload?id=1", form.FormDataContentType(), strings.NewReader(body.String()))
	require.NoError(t, err)
	resp.Body.Close()
	s.Close()
	require.NotEmpty(t, file)
	_, err = os.Stat(file)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The cost of the middleware per request, including the lock.
func BenchmarkGuard(b *testing.B) {
	l := wllocktest.New(b)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{
		"bare": handler, "guarded": guarded(l, handler),
	} {
		b.Run(name, func(b *testing.B) {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/?id=1", nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
