package ginguard

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/heldkey"
	"github.com/wllock/wllock/middleware/httpguard"
)

// New is httpguard.New for gin: the handlers behind it run under the lock with this name and the key that key makes from the
// request. Route parameters are path values: httpguard.PathValue("id") for "/orders/:id".
func New(locker *wllock.Locker, name string, key httpguard.KeyFunc, opts ...httpguard.Option) gin.HandlerFunc {
	return Adapt(httpguard.New(locker, name, key, opts...))
}

// NewAll is httpguard.NewAll for gin: several locks at once, all or none.
func NewAll(locker *wllock.Locker, keys httpguard.KeysFunc, opts ...httpguard.Option) gin.HandlerFunc {
	return Adapt(httpguard.NewAll(locker, keys, opts...))
}

// Adapt makes a middleware of gin from one of net/http that answers a request or passes it on with another context, as those of packages
// httpguard and ratelimit do. Route parameters become path values of the request.
func Adapt(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	if middleware == nil {
		panic("ginguard: Adapt(nil): want a middleware")
	}
	return func(c *gin.Context) { serve(c, middleware) }
}

func serve(c *gin.Context, middleware func(http.Handler) http.Handler) {
	outer, passed := c.Request, false
	for _, p := range c.Params {
		outer.SetPathValue(p.Key, p.Value)
	}
	defer func() {
		carry(c, outer) // its context does not end with the lock: outer middleware may work with it
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
	middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed = true
		carry(c, r) // its context has the lock
		c.Next()
	})).ServeHTTP(c.Writer, outer)
}

// carry makes r the request of c, and the lock of its context that of c: gin's own context looks for values in the request only with
// gin.Engine.ContextWithFallback, and a guard inside that got it would wait for the lock that its caller holds.
func carry(c *gin.Context, r *http.Request) {
	c.Request = r
	if held := r.Context().Value(heldkey.Key); held != nil {
		c.Set(heldkey.Key, held)
	} else {
		c.Delete(heldkey.Key)
	}
}
