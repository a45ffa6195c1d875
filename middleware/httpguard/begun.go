package httpguard

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
)

// knowledge says whether a response has begun.
type knowledge int

const (
	unknown knowledge = iota
	no
	yes
)

// begun tells whether something has been written through w, or the connection been hijacked.
//
// The ResponseWriter is not wrapped, and net/http has no method for it, so two ways are left: the field in which its own
// writers note it, read by reflection as long as it exists, and gin's method. No other writer is trusted, whatever fields
// and methods of such names it has: a wrapper may note WriteHeader but not Write, may count a status of 103, or start with
// a status of 200. It may also buffer what was written. So for a wrapper only the inner writer is asked, and only a yes
// counts.
func begun(w http.ResponseWriter) knowledge {
	if isOwn(w) {
		return noted(w)
	}
	gin, isGin := w.(interface{ Written() bool })
	isGin = isGin && packageOf(w) == "github.com/gin-gonic/gin"
	if isGin && gin.Written() {
		return yes
	}
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok && begun(outer.Unwrap()) == yes {
		return yes
	}
	if isGin {
		return no
	}
	return unknown
}

// isOwn reports whether w is a writer of net/http, httptest or golang.org/x/net/http2.
func isOwn(w http.ResponseWriter) bool {
	p := packageOf(w)
	return p == "net/http" || strings.HasPrefix(p, "net/http/") || p == "golang.org/x/net/http2"
}

// packageOf returns the path of the package of w's type.
func packageOf(w http.ResponseWriter) string {
	t := reflect.TypeOf(w)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

func known(is bool) knowledge {
	if is {
		return yes
	}
	return no
}

// noted reads what a writer of net/http has noted. The handler has returned, so there is no concurrent write.
func noted(w http.ResponseWriter) knowledge {
	v := reflect.ValueOf(w)
	header := flag(v, "wroteHeader")
	if header == unknown {
		return flag(v, "rws", "wroteHeader") // HTTP/2
	}
	if flag(v, "conn", "hijackedv") == yes {
		return yes
	}
	return header
}

// sent returns how many bytes of a body have reached the innermost writer, or -1 if that is unknown.
func sent(w http.ResponseWriter) int64 {
	if !isOwn(w) { // its own count may include what it buffers
		if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			return sent(outer.Unwrap())
		}
		return -1
	}
	v := reflect.ValueOf(w)
	for _, path := range [][]string{{"written"}, {"rws", "wroteBytes"}} { // HTTP/1, HTTP/2
		if n := field(v, path...); n.Kind() == reflect.Int64 {
			return n.Int()
		}
	}
	if body := field(v, "Body"); body.Kind() == reflect.Pointer && !body.IsNil() && body.CanInterface() { // httptest
		if b, ok := body.Interface().(*bytes.Buffer); ok {
			return int64(b.Len())
		}
	}
	return -1
}

// flag reads a bool at the end of a path of struct fields.
func flag(v reflect.Value, path ...string) knowledge {
	v = field(v, path...)
	if v.Kind() != reflect.Bool {
		return unknown
	}
	return known(v.Bool())
}

// field follows a path of struct fields; the zero Value if there is none.
func field(v reflect.Value, path ...string) reflect.Value {
	for _, name := range path {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		v = v.FieldByName(name)
	}
	return v
}
