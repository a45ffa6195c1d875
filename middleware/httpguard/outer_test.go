package httpguard_test

import (
	"net/http"
	"testing"

	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/httpguard"
)

// What guards of frameworks do behind outer middleware, that of net/http does.
func TestBehindOuterMiddleware(t *testing.T) {
	guardtest.Framework[func(http.Handler) http.Handler, http.Handler]{
		New: httpguard.New,
		Handle: func(f func(*http.Request, http.ResponseWriter)) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(r, w) })
		},
		Routes: func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/orders/{id}", guard(h))
			return mux
		},
	}.TestBehindOuterMiddleware(t)
}
