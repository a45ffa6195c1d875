package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin makes a guard a middleware of gin, with the parameters of the route as path values.
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
			c.Abort() // or gin would go on to the handler
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler: // cancelled while it waited; of which gin.Recovery would make an empty 200
				c.AbortWithStatus(http.StatusServiceUnavailable)
			default:
				panic(p)
			}
		}()
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // whose context has the lock
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
	}
}
