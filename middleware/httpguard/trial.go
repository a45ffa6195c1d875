package httpguard

import (
	"maps"
	"net/http"

	"github.com/wllock/wllock/internal/problem"
)

// trial is the writer for the answer to a lost lock if it is unknown whether a response has begun. A second WriteHeader has
// no effect, but a second body is appended to the first. So the body is written only if the header is seen to reach the
// inner writer, and what follows it arrives there with nothing in between. Otherwise the client gets the status alone, or
// what the handler has written.
type trial struct {
	w      http.ResponseWriter
	before http.Header // as the handler left it

	wrote  bool // WriteHeader was called
	begun  bool // and has reached the inner writer
	passes bool // a body reaches it as well, as far as is known
	tried  bool // a part of a body has been written to see that
}

func newTrial(w http.ResponseWriter) *trial { return &trial{w: w, before: w.Header().Clone()} }

// Header implements http.ResponseWriter.
func (t *trial) Header() http.Header { return t.w.Header() }

// WriteHeader implements http.ResponseWriter. It sends no length, because the body may be dropped.
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

// try writes the beginning of a body, to see whether it reaches the inner writer at once and nothing was buffered before
// it. If something was, the beginning ends up behind it, so for a problem it is a line end, with which JSON may begin.
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

// end restores the header if it has not been sent: it may belong to a response that is still buffered.
func (t *trial) end() {
	if t.begun {
		return
	}
	h := t.w.Header()
	clear(h)
	maps.Copy(h, t.before)
}
