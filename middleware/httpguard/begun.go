package httpguard

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
)

// knowledge of whether a response has been begun.
type knowledge int

const (
	unknown knowledge = iota
	no
	yes
)

// begun tells whether something has been written, or the connection been taken over, through w.
//
// The ResponseWriter is not wrapped, and net/http has no question for it, so this is what is left: the field in which its
// own writers note it, which is read by reflection as long as it is there, and gin's method. Nobody else is believed,
// whatever fields and methods of such names there are: a wrapper may note what is written and not what Write begins, may
// note a status of 103, or begin with one of 200. And it may keep back what was written; so of a wrapper only the writer
// inside is asked, and only its yes counts.
func begun(w http.ResponseWriter) knowledge {
	if isOwn(w) {
		return noted(w)
	}
	if gin, ok := w.(interface{ Written() bool }); ok && packageOf(w) == "github.com/gin-gonic/gin" {
		return known(gin.Written())
	}
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok && begun(outer.Unwrap()) == yes {
		return yes
	}
	return unknown
}

// isOwn reports whether w is one of net/http's own writers, or httptest's, or that of HTTP/2 from outside of the standard
// library.
func isOwn(w http.ResponseWriter) bool {
	p := packageOf(w)
	return p == "net/http" || strings.HasPrefix(p, "net/http/") || p == "golang.org/x/net/http2"
}

// packageOf returns the path of the package that w's type is from.
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

// noted reads what a writer of net/http's own notes. The handler has returned, so nobody writes to it now.
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

// sent is how many bytes of a body have come to the writer inside, or -1 if it does not tell.
func sent(w http.ResponseWriter) int64 {
	if !isOwn(w) { // a count of its own may have what it keeps back
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
