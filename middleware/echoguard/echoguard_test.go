package echoguard_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/echoguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// framework is what all tests of guards need.
var framework = guardtest.Framework[echo.MiddlewareFunc, handler]{
	New: echoguard.New, NewAll: echoguard.NewAll, Adapt: echoguard.Adapt, Handle: handle, Behind: behind,
	Routes:     func(guard echo.MiddlewareFunc, h handler) http.Handler { return routes(guard, h) },
	Compressed: func(guard echo.MiddlewareFunc, h handler) http.Handler { return routes(guard, h, middleware.Gzip()) },
	Limited: func(bytes int64, guard echo.MiddlewareFunc, h handler) http.Handler {
		return routes(guard, h, middleware.BodyLimit(bytes))
	},
	Recovered: func(guard echo.MiddlewareFunc, h handler) http.Handler { return routes(guard, h, middleware.Recover()) },
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGuard(t *testing.T) { framework.Test(t) }

type handler = echo.HandlerFunc

// handle makes a handler of the framework, which returns the error of its context, as many do.
func handle(f func(*http.Request, http.ResponseWriter)) handler {
	return func(c *echo.Context) error {
		f(c.Request(), c.Response())
		return c.Request().Context().Err()
	}
}

// routes serves orders behind the guard, and other middleware before it.
func routes(guard echo.MiddlewareFunc, h handler, outer ...echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.Use(outer...)
	e.POST("/orders/:id", h, guard)
	return e
}

// behind calls outer after the guard and the handler.
func behind(outer func(*http.Request), guard echo.MiddlewareFunc, h handler) http.Handler {
	return routes(guard, h, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			outer(c.Request())
			return err
		}
	})
}

// Echo answers an error of the handler when the lock has been released.
func TestErrorOfTheHandler(t *testing.T) {
	l := wllocktest.New(t)
	h := routes(echoguard.New(l, "product", guardtest.ByID), func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no coffee") })
	a := guardtest.Order(t, h)
	require.Equal(t, http.StatusTeapot, a.StatusCode)
	require.Contains(t, a.Body, "no coffee")
}

// Why there is an adapter at all: behind echo's own, the answer to a lost lock is followed by that to the handler's error.
func TestWrapMiddlewareAnswersTwice(t *testing.T) {
	l := wllocktest.New(t)
	guard := httpguard.New(l, "product", guardtest.ByID, httpguard.WithCallOptions(wllock.WithLockTimeMax(1)))
	wait := handle(func(r *http.Request, _ http.ResponseWriter) { <-r.Context().Done() })
	require.Contains(t, guardtest.Order(t, routes(echo.WrapMiddleware(guard), wait)).Body, "Internal Server Error")
	guardtest.Order(t, routes(echoguard.Adapt(guard), wait)).IsProblem(t, http.StatusServiceUnavailable, "lease-lost")
}
