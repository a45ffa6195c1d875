package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// EchoV4 turns a guard into a middleware of echo v4, with the route parameters as path values. Echo answers an error that the
// handler returns after the lock has been released, unless the lock was lost.
func EchoV4(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			outer := c.Request()
			for _, name := range c.ParamNames() {
				outer.SetPathValue(name, c.Param(name))
			}
			defer c.SetRequest(outer) // its context does not end with the lock
			guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				err = next(c)
				if w := c.Response(); w.Status < http.StatusOK && w.Status != http.StatusSwitchingProtocols && w.Size == 0 {
					w.Committed = false // echo takes an informational status for the answer
				}
			})).ServeHTTP(c.Response(), outer)
			return err
		}
	}
}
