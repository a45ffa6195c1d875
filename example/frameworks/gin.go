package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin turns a guard into a middleware of gin, with the route parameters as path values.
func Gin(guard func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
		passed := false
		defer func() {
			if passed {
				return
			}
			c.Abort() // otherwise gin would continue with the handler
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler: // canceled while it waited; gin.Recovery would send an empty 200
				c.AbortWithStatus(http.StatusServiceUnavailable)
			default:
				panic(p)
			}
		}()
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // its context carries the lock
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
	}
}
