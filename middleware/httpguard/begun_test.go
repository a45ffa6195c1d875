package httpguard

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// begun.go reads unexported fields of net/http. If this fails with a new release of Go, fix begun.go; until then a lost lock
// is still answered with 503, but without a problem.
func TestFieldsOfNetHTTP(t *testing.T) {
	const changed = "net/http has changed the fields that begun.go reads"
	steps := []struct {
		name string
		do   func(w http.ResponseWriter)
		want knowledge
		sent int64
	}{
		{"nothing", func(http.ResponseWriter) {}, no, 0},
		{"a header set", func(w http.ResponseWriter) { w.Header().Set("A", "b") }, no, 0},
		{"an informational status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, no, 0},
		{"a status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) }, yes, 0},
		{"a body", func(w http.ResponseWriter) { fmt.Fprint(w, "four") }, yes, 4},
		{"a flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, yes, 0},
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, step := range steps {
			t.Run(proto+", "+step.name, func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					step.do(w)
					if r.Proto != proto || begun(w) != step.want || sent(w) != step.sent {
						t.Errorf("%s: %s %v, %d bytes; want %v, %d", changed, r.Proto, begun(w), sent(w), step.want, step.sent)
					}
				}))
				s.EnableHTTP2 = proto == "HTTP/2.0"
				s.StartTLS()
				defer s.Close()
				resp, err := s.Client().Get(s.URL)
				require.NoError(t, err)
				resp.Body.Close()
			})
		}
	}
	t.Run("hijacked", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil || begun(w) != yes {
				t.Errorf("%s: %v, %v", changed, begun(w), err)
				return
			}
			conn.Close()
		}))
		defer s.Close()
		resp, err := s.Client().Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
	})
	w := httptest.NewRecorder()
	require.Equal(t, no, begun(w), changed)
	w.WriteHeader(http.StatusCreated)
	require.Equal(t, yes, begun(w), changed)
}

// claiming is a wrapper with the fields of net/http's writers, but with other meanings.
type claiming struct {
	http.ResponseWriter
	wroteHeader bool
	written     int64
	Body        *bytes.Buffer
}

func (c *claiming) Written() bool               { return c.wroteHeader }
func (c *claiming) Status() int                 { return http.StatusOK }
func (c *claiming) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func TestOnlyTheInnerWriterIsTrusted(t *testing.T) {
	inside := httptest.NewRecorder()
	w := &claiming{ResponseWriter: inside, wroteHeader: true, written: 7, Body: bytes.NewBufferString("kept back")}
	require.Equal(t, unknown, begun(w), "its yes")
	require.Zero(t, sent(w))
	fmt.Fprint(inside, "four")
	w.wroteHeader = false
	require.Equal(t, yes, begun(w))
	require.EqualValues(t, 4, sent(w))
	w.ResponseWriter = httptest.NewRecorder()
	require.Equal(t, unknown, begun(w), "its no")
	require.Equal(t, unknown, begun(struct{ http.ResponseWriter }{inside}), "an embedded writer may be anything")
}
