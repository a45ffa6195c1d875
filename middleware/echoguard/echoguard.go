package echoguard

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
)

// New is httpguard.New for echo: the handler behind it runs under the lock with this name and the key that the function key makes from the
// request. Route parameters are path values: httpguard.PathValue("id") for "/orders/:id".
func New(locker *wllock.Locker, name string, key httpguard.KeyFunc, opts ...httpguard.Option) echo.MiddlewareFunc {
	return Adapt(httpguard.New(locker, name, key, opts...))
}

// NewAll is httpguard.NewAll for echo: several locks at once, all or none.
func NewAll(locker *wllock.Locker, keys httpguard.KeysFunc, opts ...httpguard.Option) echo.MiddlewareFunc {
	return Adapt(httpguard.NewAll(locker, keys, opts...))
}

// Adapt makes a middleware of echo from one of net/http. That must answer a request or pass it on with another context, as those of packages
// httpguard and ratelimit do. Route parameters become path values of the request.
//
// Unlike echo.WrapMiddleware it does not replace the response. With a response of its own, echo would not see that a lost lock has been
// answered, and would append the answer to the handler's error.
func Adapt(middleware func(http.Handler) http.Handler) echo.MiddlewareFunc {
	if middleware == nil {
		panic("echoguard: Adapt(nil): want a middleware")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return serve(c, middleware, next) }
	}
}

func serve(c *echo.Context, middleware func(http.Handler) http.Handler, next echo.HandlerFunc) (err error) {
	outer := c.Request()
	for _, p := range c.PathValues() {
		outer.SetPathValue(p.Name, p.Value)
	}
	defer c.SetRequest(outer) // its context does not end with the lock: outer middleware and the error handler may work with it
	middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.SetRequest(r) // its context carries the lock
		err = next(c)
		if w, _ := echo.UnwrapResponse(c.Response()); w != nil && w.Status < http.StatusOK && w.Status != http.StatusSwitchingProtocols && w.Size == 0 {
			w.Committed = false // echo takes an informational status for the answer, and would drop the one to a lost lock
		}
	})).ServeHTTP(c.Response(), outer)
	return err
}
