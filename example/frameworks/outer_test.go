package frameworks_test

import (
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"

	"github.com/wllock/wllock/example/frameworks"
	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/httpguard"
)

type guard = func(http.Handler) http.Handler

// handle makes a handler of net/http, as chi has them.
func handle(f func(*http.Request, http.ResponseWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(r, w) })
}

// Behind outer middleware, a guard answers through the routers of this package as through net/http.
func TestBehindOuterMiddleware(t *testing.T) {
	t.Run("chi", func(t *testing.T) {
		routes := func(g guard, h http.Handler, outer ...guard) http.Handler {
			router := chi.NewRouter()
			router.Use(middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)})) // wraps the writer
			router.Use(outer...)
			router.With(g).Method(http.MethodPost, "/orders/{id}", h)
			return router
		}
		guardtest.Framework[guard, http.Handler]{
			New: httpguard.New, Handle: handle, Routes: func(g guard, h http.Handler) http.Handler { return routes(g, h) },
			Compressed: func(g guard, h http.Handler) http.Handler {
				return routes(g, h, middleware.Compress(5, "application/problem+json"))
			},
			Limited: func(bytes int64, g guard, h http.Handler) http.Handler {
				return routes(g, h, middleware.RequestSize(bytes))
			},
		}.TestBehindOuterMiddleware(t)
	})
	t.Run("echo v4", func(t *testing.T) {
		guardtest.Framework[guard, echo.HandlerFunc]{
			New: httpguard.New,
			Handle: func(f func(*http.Request, http.ResponseWriter)) echo.HandlerFunc {
				return func(c echo.Context) error {
					f(c.Request(), c.Response())
					return c.Request().Context().Err()
				}
			},
			Routes: func(g guard, h echo.HandlerFunc) http.Handler {
				router := echo.New()
				router.POST("/orders/:id", h, frameworks.EchoV4(g))
				return router
			},
		}.TestBehindOuterMiddleware(t)
	})
}
