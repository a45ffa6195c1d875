package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Echo turns a guard into a middleware of echo, with the route parameters as path values. Echo answers errors that the
// handler returns after the lock has been released.
func Echo(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			for _, name := range c.ParamNames() {
				c.Request().SetPathValue(name, c.Param(name))
			}
			guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				err = next(c)
			})).ServeHTTP(c.Response(), c.Request())
			return err
		}
	}
}
