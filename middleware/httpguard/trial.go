package httpguard

import (
	"maps"
	"net/http"

	"github.com/wllock/wllock/internal/problem"
)

// trial is what a lost lock is answered through when the writer does not tell whether it has begun. A second WriteHeader
// has no effect, a second body is appended to the first. So the body goes out only if the header is seen to have done so,
// and what is written after it to follow with nothing between; else the client gets a mere status, or what the handler
// has written.
type trial struct {
	w      http.ResponseWriter
	before http.Header // as the handler has left it

	wrote  bool // WriteHeader was called
	begun  bool // and has come to the writer inside
	passes bool // so does a body, as far as is known
	tried  bool // which has been tried
}

func newTrial(w http.ResponseWriter) *trial { return &trial{w: w, before: w.Header().Clone()} }

// Header implements http.ResponseWriter.
func (t *trial) Header() http.Header { return t.w.Header() }

// WriteHeader implements http.ResponseWriter. No length is told, for the body may stay behind.
func (t *trial) WriteHeader(status int) {
	if t.wrote {
		return
	}
	if status >= 200 {
		t.wrote = true
		t.w.Header().Del("Content-Length")
	}
	t.w.WriteHeader(status)
	if t.wrote {
		t.begun = begun(t.w) == yes
		t.passes = t.begun && sent(t.w) == 0
	}
}

// Write implements http.ResponseWriter.
func (t *trial) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	switch {
	case !t.passes || len(b) == 0:
		return len(b), nil
	case t.tried:
		return t.w.Write(b)
	}
	return t.try(b)
}

// try writes the beginning of a body, to see whether it comes through at once and nothing was kept back before it. What
// is kept back has it at its end then, so with a problem it is a line end, with which JSON may begin.
func (t *trial) try(b []byte) (int, error) {
	t.tried = true
	first, rest := b[:1], b[1:]
	if t.w.Header().Get("Content-Type") == problem.ContentType {
		first, rest = []byte("\n"), b
	}
	if _, err := t.w.Write(first); err != nil {
		return 0, err
	}
	if t.passes = sent(t.w) == 1; !t.passes {
		return len(b), nil
	}
	n, err := t.w.Write(rest)
	return len(b) - len(rest) + n, err
}

// end takes back the header if it has not gone out: it may be that of a response that is still kept back.
func (t *trial) end() {
	if t.begun {
		return
	}
	h := t.w.Header()
	clear(h)
	maps.Copy(h, t.before)
}
