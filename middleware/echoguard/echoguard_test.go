package echoguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/echoguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// framework is what all tests of guards need.
var framework = guardtest.Framework[echo.MiddlewareFunc, handler]{
	New: echoguard.New, NewAll: echoguard.NewAll, Adapt: echoguard.Adapt, Handle: handle, Routes: routes, Behind: behind, Recovered: recovered,
}

func TestGuard(t *testing.T) { framework.Test(t) }

type handler = echo.HandlerFunc

// handle makes a handler of the framework, which returns the error of its context, as many do.
func handle(f func(*http.Request, http.ResponseWriter)) handler {
	return func(c *echo.Context) error {
		f(c.Request(), c.Response())
		return c.Request().Context().Err()
	}
}

// routes serves orders behind the guard.
func routes(guard echo.MiddlewareFunc, h handler) http.Handler {
	e := echo.New()
	e.POST("/orders/:id", h, guard)
	return e
}

// behind calls outer after the guard and the handler.
func behind(outer func(*http.Request), guard echo.MiddlewareFunc, h handler) http.Handler {
	e := echo.New()
	e.POST("/orders/:id", h, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			outer(c.Request())
			return err
		}
	}, guard)
	return e
}

func recovered(guard echo.MiddlewareFunc, h handler) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.POST("/orders/:id", h, guard)
	return e
}

// A request that is canceled while it waits gets no empty 200: the connection is closed. The handler does not run.
func TestCanceledWhileItWaits(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1000")
	server := httptest.NewServer(guardtest.Canceled(recovered(echoguard.New(l, "product", guardtest.ByID), framework.Never(t))))
	defer server.Close()
	resp, err := server.Client().Post(server.URL+"/orders/1000", "text/plain", nil)
	if err == nil {
		resp.Body.Close()
	}
	require.Error(t, err)
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
