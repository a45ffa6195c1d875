package guardtest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// TestBehindOuterMiddleware tests what clients get through middleware that stands before the guard. It needs New, Handle and Routes only.
func (f Framework[M, H]) TestBehindOuterMiddleware(t *testing.T) {
	t.Run("Answers", f.testAnswersBehindOuterMiddleware)
	t.Run("BodiesThatEndEarly", f.testBodiesThatEndEarly)
	t.Run("CanceledWhileItWaits", f.testCanceledWhileItWaits)
}

// outers are middlewares that stand before all of a framework.
var outers = map[string]func(http.Handler) http.Handler{
	"nothing": func(h http.Handler) http.Handler { return h },
	"compression of the old kind": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			compressed := &compressing{ResponseWriter: w, body: gzip.NewWriter(w)}
			h.ServeHTTP(compressed, r)
			_ = compressed.body.Close()
		})
	},
	"compression of the old kind, unwrapped": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			compressed := &unwrapped{compressing{ResponseWriter: w, body: gzip.NewWriter(w)}}
			h.ServeHTTP(compressed, r)
			_ = compressed.body.Close()
		})
	},
	"compression of the new kind": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			compressed := &unwrapped{compressing{ResponseWriter: w, body: gzip.NewWriter(w), late: true}}
			h.ServeHTTP(compressed, r)
			if w.Header().Get("Content-Encoding") != "" {
				_ = compressed.body.Close()
			}
		})
	},
	"a body limit": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
			h.ServeHTTP(w, r)
		})
	},
	"a read deadline": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			h.ServeHTTP(w, r)
		})
	},
	"early hints": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			h.ServeHTTP(w, r)
		})
	},
	"a site that is cached": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range kept {
				w.Header().Set(name, "max-age=60")
			}
			h.ServeHTTP(w, r)
		})
	},
}

// kept are header fields with which a cache keeps a response.
var kept = []string{"Cache-Control", "CDN-Cache-Control", "Cloudflare-CDN-Cache-Control", "Surrogate-Control", "Expires"}

// described are header fields that describe the body of another answer.
var described = []string{"Content-Range", "Content-Disposition", "Content-Language", "Content-Digest", "Digest", "ETag", "Last-Modified", "Accept-Ranges"}

// compressing is the writer of a compressing middleware. One of the old kind sets Content-Encoding when a request comes.
type compressing struct {
	http.ResponseWriter
	body  *gzip.Writer
	late  bool // the new kind: with the status
	begun bool
}

func (c *compressing) WriteHeader(status int) {
	if c.late && status >= http.StatusOK && !c.begun {
		c.Header().Set("Content-Encoding", "gzip")
		c.begun = true
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressing) Write(b []byte) (int, error) {
	if c.late && !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	return c.body.Write(b)
}

// unwrapped is compressing that the guard can look into.
type unwrapped struct{ compressing }

func (u *unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Each answer of the guard arrives through each middleware: with its status and a body that the client can read, never as an empty 200.
func (f Framework[M, H]) testAnswersBehindOuterMiddleware(t *testing.T) {
	hold := func(t *testing.T, l *wllock.Locker, _ *wllocktest.Faults) { wllocktest.Hold(t, l, "product", "1000") }
	answers := map[string]struct {
		status  int
		kind    string
		prepare func(*testing.T, *wllock.Locker, *wllocktest.Faults)
		opts    []wllock.CallOption
		key     httpguard.KeyFunc
		before  func(http.ResponseWriter) // what the handler does before its lock is lost; nil: it does not run
	}{
		"held":         {status: http.StatusConflict, kind: "held", prepare: hold, opts: []wllock.CallOption{wllock.NoWait()}},
		"queue full":   {status: http.StatusTooManyRequests, kind: "queue-full", prepare: hold, opts: []wllock.CallOption{wllock.WithCallThreshold(0)}},
		"wait timeout": {status: http.StatusTooManyRequests, kind: "wait-timeout", prepare: hold, opts: []wllock.CallOption{wllock.WithWait(100 * time.Millisecond)}},
		"unavailable": {status: http.StatusServiceUnavailable, kind: "backend-unavailable", prepare: func(_ *testing.T, _ *wllock.Locker, faults *wllocktest.Faults) {
			faults.Partition()
		}},
		"invalid key": {status: http.StatusBadRequest, kind: "invalid-key", key: httpguard.Query("none")},
		"lost":        {status: http.StatusServiceUnavailable, kind: "lease-lost", before: func(http.ResponseWriter) {}},
		"lost after fields of another answer": {status: http.StatusServiceUnavailable, kind: "lease-lost", before: func(w http.ResponseWriter) {
			for _, name := range append(kept, described...) {
				w.Header()[name] = []string{"other"}
			}
		}},
		"lost after early hints": {status: http.StatusServiceUnavailable, kind: "lease-lost", before: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
		}},
	}
	behind := map[string]func(guard M, h H) http.Handler{}
	for name, outer := range outers {
		behind[name] = func(guard M, h H) http.Handler { return outer(f.Routes(guard, h)) }
	}
	if f.Compressed != nil {
		behind["compression of the framework"] = f.Compressed
	}
	for outer, routes := range behind {
		for name, a := range answers {
			t.Run(outer+", "+name, func(t *testing.T) {
				t.Parallel()
				ttl := wllock.DefaultLeaseTTL // a lock that is to stay taken must last longer than a pause of the machine
				if a.before != nil {
					ttl = 200 * time.Millisecond
				}
				l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(ttl))
				if a.prepare != nil {
					a.prepare(t, l, faults)
				}
				if a.key == nil {
					a.key = ByID
				}
				h := f.Never(t)
				if a.before != nil {
					h = f.Handle(func(r *http.Request, w http.ResponseWriter) {
						a.before(w)
						faults.Lose("product", "1000")
						held, _ := wllock.HeldFrom(r.Context())
						for held.Err() == nil { // the context may end earlier, with the request
							time.Sleep(time.Millisecond)
						}
					})
				}
				if outer == "a read deadline" && name == "wait timeout" { // the deadline comes first
					a.status, a.kind = http.StatusServiceUnavailable, "canceled"
				}
				got := Order(t, routes(f.New(l, "product", a.key, calls(a.opts...)), h), "Accept-Encoding", "gzip")
				faults.Heal()
				got.unzip(t)
				if a.before != nil && strings.HasPrefix(outer, "compression") && strings.TrimSpace(got.Body) == "" {
					require.Equal(t, a.status, got.StatusCode) // what is buffered looks like an answer of the handler: only the status is certain
					return
				}
				got.IsProblem(t, a.status, a.kind)
				require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
				for _, name := range append(kept[1:], described...) {
					require.Empty(t, got.Header.Get(name), name)
				}
			})
		}
	}
}

// unzip undoes what Content-Encoding says, and nothing else.
func (a *Answer) unzip(t *testing.T) {
	t.Helper()
	if a.Header.Get("Content-Encoding") != "gzip" || a.Body == "" {
		return
	}
	r, err := gzip.NewReader(strings.NewReader(a.Body))
	require.NoError(t, err, "%q", a.Body)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	a.Body = string(b)
}

// A body that outer middleware ends is answered with the status of that middleware's error, or by itself.
func (f Framework[M, H]) testBodiesThatEndEarly(t *testing.T) {
	guard := f.New(wllocktest.New(t), "product", ByID)
	replaced := func(end func(http.ResponseWriter, io.ReadCloser) io.ReadCloser) http.Handler {
		h := f.Routes(guard, f.Never(t))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = end(w, r.Body)
			h.ServeHTTP(w, r)
		})
	}
	fails := func(err error) http.Handler {
		return replaced(func(http.ResponseWriter, io.ReadCloser) io.ReadCloser { return failing{err: err} })
	}
	tests := map[string]struct {
		h      http.Handler
		status int
		kind   string // "": the outer middleware answers
	}{
		"net/http's limit": {replaced(func(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
			return http.MaxBytesReader(w, body, 4)
		}), http.StatusRequestEntityTooLarge, "body-too-large"},
		"too large":             {fails(coded(http.StatusRequestEntityTooLarge)), http.StatusRequestEntityTooLarge, "body-too-large"},
		"another status":        {fails(coded(http.StatusUnsupportedMediaType)), http.StatusUnsupportedMediaType, "unreadable-body"},
		"no status of an error": {fails(coded(http.StatusOK)), http.StatusBadRequest, "unreadable-body"},
		"a deadline":            {fails(os.ErrDeadlineExceeded), http.StatusRequestTimeout, "unreadable-body"},
		"anything":              {fails(io.ErrUnexpectedEOF), http.StatusBadRequest, "unreadable-body"},
		"an answer of its own": {replaced(func(w http.ResponseWriter, _ io.ReadCloser) io.ReadCloser {
			return failing{err: io.ErrUnexpectedEOF, before: func() { http.Error(w, "too large", http.StatusRequestEntityTooLarge) }}
		}), http.StatusRequestEntityTooLarge, ""},
	}
	if f.Limited != nil {
		limited := tests["too large"]
		limited.h = f.Limited(4, guard, f.Never(t))
		tests["the framework's limit"] = limited
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := send(t, test.h, io.MultiReader(strings.NewReader("12345")))
			if test.kind == "" {
				require.Equal(t, test.status, a.StatusCode)
				require.Equal(t, "too large\n", a.Body)
				return
			}
			a.IsProblem(t, test.status, test.kind)
		})
	}
	t.Run("a read deadline", func(t *testing.T) {
		body, rest := io.Pipe() // of which nothing comes
		defer func() { _ = rest.Close() }()
		defer time.AfterFunc(5*time.Second, func() { _ = rest.Close() }).Stop() // net/http's client waits for the body even without a connection
		send(t, outers["a read deadline"](f.Routes(guard, f.Never(t))), body).IsProblem(t, http.StatusRequestTimeout, "unreadable-body")
	})
}

// failing is a body that cannot be read.
type failing struct {
	err    error
	before func()
}

func (f failing) Read([]byte) (int, error) {
	if f.before != nil {
		f.before()
	}
	return 0, f.err
}

func (failing) Close() error { return nil }

// coded is an error with a status, as echo has them.
type coded int

func (c coded) Error() string   { return http.StatusText(int(c)) }
func (c coded) StatusCode() int { return int(c) }

// A request that is canceled while it waits gets an answer, with a server and without one: its client may be there, and would take an empty
// 200 for work that was done. The handler does not run.
func (f Framework[M, H]) testCanceledWhileItWaits(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1000")
	h := canceled(f.Routes(f.New(l, "product", ByID), f.Never(t)))
	Order(t, h).IsProblem(t, http.StatusServiceUnavailable, "canceled")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/1000", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"), "nothing was done")
	require.Zero(t, l.Stats().Total.Waiting)
}
