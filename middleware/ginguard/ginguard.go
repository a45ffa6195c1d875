package ginguard

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/heldkey"
	"github.com/wllock/wllock/middleware/httpguard"
)

// New is httpguard.New for gin: the handlers behind it run under the lock with this name and the key that the function key makes from the
// request. Route parameters are path values: httpguard.PathValue("id") for "/orders/:id".
func New(locker *wllock.Locker, name string, key httpguard.KeyFunc, opts ...httpguard.Option) gin.HandlerFunc {
	return Adapt(httpguard.New(locker, name, key, opts...))
}

// NewAll is httpguard.NewAll for gin: several locks at once, all or none.
func NewAll(locker *wllock.Locker, keys httpguard.KeysFunc, opts ...httpguard.Option) gin.HandlerFunc {
	return Adapt(httpguard.NewAll(locker, keys, opts...))
}

// Adapt makes a middleware of gin from one of net/http. That must answer a request or pass it on with another context, as those of packages
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
		lend(c, outer) // its context does not end with the lock: outer middleware may work with it
		if !passed {
			c.Abort() // otherwise gin would continue with the handler
		}
	}()
	middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed = true
		lend(c, r) // its context has the lock
		c.Next()
	})).ServeHTTP(c.Writer, outer)
}

// lend makes r the request of c, and says so to wllock. gin uses c again for another request, and a goroutine may still have it then. So c
// carries no lock, also where gin looks into its request (gin.Engine.ContextWithFallback). Who asks with c for the lock of its request would
// wait for itself, and is refused.
func lend(c *gin.Context, r *http.Request) {
	c.Request = r
	if held := r.Context().Value(heldkey.Key); held != nil {
		c.Set(heldkey.Key, heldkey.Lent{Held: held})
	} else {
		c.Delete(heldkey.Key)
	}
}
