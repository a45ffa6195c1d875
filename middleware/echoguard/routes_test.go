package echoguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/echoguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

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
	server := httptest.NewServer(canceled(recovered(echoguard.New(l, "product", byID), never(t))))
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
	h := routes(echoguard.New(l, "product", byID), func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no coffee") })
	a := order(t, h)
	require.Equal(t, http.StatusTeapot, a.StatusCode)
	require.Contains(t, a.body, "no coffee")
}

// Why there is an adapter at all: behind echo's own, the answer to a lost lock is followed by that to the handler's error.
func TestWrapMiddlewareAnswersTwice(t *testing.T) {
	l := wllocktest.New(t)
	guard := httpguard.New(l, "product", byID, calls(wllock.WithLockTimeMax(1)))
	wait := handle(func(r *http.Request, _ http.ResponseWriter) { <-r.Context().Done() })
	require.Contains(t, order(t, routes(echo.WrapMiddleware(guard), wait)).body, "Internal Server Error")
	order(t, routes(echoguard.Adapt(guard), wait)).isProblem(t, http.StatusServiceUnavailable, "lease-lost")
}
