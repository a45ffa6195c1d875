package httpguard_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
)

// plain is a wrapper without further methods, which passes everything through at once.
type plain struct{ http.ResponseWriter }

// open is plain with an Unwrap method.
type open struct{ http.ResponseWriter }

func (o open) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// keeping buffers everything until the end, as some compressing writers do.
type keeping struct {
	http.ResponseWriter
	status int
	body   strings.Builder
}

func (k *keeping) Unwrap() http.ResponseWriter { return k.ResponseWriter }
func (k *keeping) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *keeping) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(b)
}

func (k *keeping) end() {
	if k.status != 0 {
		k.ResponseWriter.WriteHeader(k.status)
	}
	fmt.Fprint(k.ResponseWriter, k.body.String())
}

// buffering buffers the body only: WriteHeader passes through at once.
type buffering struct {
	http.ResponseWriter
	body *bufio.Writer
}

func (b *buffering) Unwrap() http.ResponseWriter       { return b.ResponseWriter }
func (b *buffering) Write(p []byte) (int, error)       { return b.body.Write(p) }
func (b *buffering) WriteString(s string) (int, error) { return b.body.WriteString(s) }

// logging is the usual writer for access logs: Write is not overridden.
type logging struct {
	http.ResponseWriter
	status      int
	wroteHeader bool
}

func (l *logging) Status() int { return l.status }
func (l *logging) WriteHeader(status int) {
	if l.wroteHeader {
		return
	}
	l.status, l.wroteHeader = status, true
	l.ResponseWriter.WriteHeader(status)
}

// noting is logging without a method to ask.
type noting struct {
	http.ResponseWriter
	wroteHeader bool
}

func (n *noting) WriteHeader(status int) {
	n.wroteHeader = true
	n.ResponseWriter.WriteHeader(status)
}

// optimist starts with the status 200, as a writer must that only overrides WriteHeader.
type optimist struct {
	http.ResponseWriter
	status int
}

func (o *optimist) Status() int   { return o.status }
func (o *optimist) Written() bool { return o.status != 0 }
func (o *optimist) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

// measured counts and unwraps, as promhttp's writer does. The module test has the same with promhttp itself.
type measured struct {
	http.ResponseWriter
	status  int
	written int64
}

func (m *measured) Unwrap() http.ResponseWriter { return m.ResponseWriter }
func (m *measured) Status() int                 { return m.status }
func (m *measured) Written() int64              { return m.written }
func (m *measured) WriteHeader(status int) {
	m.status = status
	m.ResponseWriter.WriteHeader(status)
}

func (m *measured) Write(b []byte) (int, error) {
	if m.status == 0 {
		m.WriteHeader(http.StatusOK)
	}
	n, err := m.ResponseWriter.Write(b)
	m.written += int64(n)
	return n, err
}

// through makes a wrapper that needs nothing done at the end.
func through[W http.ResponseWriter](wrap func(http.ResponseWriter) W) func(http.ResponseWriter) (http.ResponseWriter, func()) {
	return func(w http.ResponseWriter) (http.ResponseWriter, func()) { return wrap(w), func() {} }
}

// writers are the kinds of writers a handler may get. Each returns the writer, and what to do at the end.
var writers = map[string]func(http.ResponseWriter) (http.ResponseWriter, func()){
	"as it is": through(func(w http.ResponseWriter) http.ResponseWriter { return w }),
	"open":     through(func(w http.ResponseWriter) open { return open{w} }),
	"measured": through(func(w http.ResponseWriter) *measured { return &measured{ResponseWriter: w} }),
	"plain":    through(func(w http.ResponseWriter) plain { return plain{w} }),
	"logging":  through(func(w http.ResponseWriter) *logging { return &logging{ResponseWriter: w} }),
	"noting":   through(func(w http.ResponseWriter) *noting { return &noting{ResponseWriter: w} }),
	"optimist": through(func(w http.ResponseWriter) *optimist { return &optimist{w, http.StatusOK} }),
	"buffering": func(w http.ResponseWriter) (http.ResponseWriter, func()) {
		b := &buffering{ResponseWriter: w, body: bufio.NewWriter(w)}
		return b, func() { b.body.Flush() }
	},
	"keeping": func(w http.ResponseWriter) (http.ResponseWriter, func()) {
		k := &keeping{ResponseWriter: w}
		return k, k.end
	},
}

var (
	// telling are the writers of which it is known whether something has been written, or can be seen while it is.
	telling = []string{"as it is", "open", "measured"}
	// mute are those behind which it cannot be known: what is written twice, net/http logs.
	mute = []string{"plain", "logging", "noting", "optimist"}
)
