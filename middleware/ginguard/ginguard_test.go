package ginguard_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/ginguard"
	"github.com/wllock/wllock/wllocktest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// framework is what all tests of guards need.
var framework = guardtest.Framework[gin.HandlerFunc, handler]{
	New: ginguard.New, NewAll: ginguard.NewAll, Adapt: ginguard.Adapt, Handle: handle,
	Routes: func(guard, h handler) http.Handler { return routes(guard, h) },
	Behind: func(outer func(*http.Request), guard, h handler) http.Handler {
		return routes(func(c *gin.Context) {
			c.Next()
			outer(c.Request)
		}, guard, h)
	},
	Recovered: func(guard, h handler) http.Handler { return routes(gin.RecoveryWithWriter(io.Discard), guard, h) },
}

func TestGuard(t *testing.T) { framework.Test(t) }

type handler = gin.HandlerFunc

// handle makes a handler of the framework.
func handle(f func(*http.Request, http.ResponseWriter)) handler {
	return func(c *gin.Context) { f(c.Request, c.Writer) }
}

// routes serves orders.
func routes(handlers ...handler) *gin.Engine {
	router := gin.New()
	router.POST("/orders/:id", handlers...)
	return router
}

// An abort of the handler's own, after it had the lock, stays one.
func TestHandlerAborts(t *testing.T) {
	l := wllocktest.New(t)
	server := httptest.NewServer(routes(ginguard.New(l, "product", guardtest.ByID), func(*gin.Context) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	resp, err := server.Client().Post(server.URL+"/orders/1000", "text/plain", nil)
	if err == nil {
		resp.Body.Close()
	}
	require.Error(t, err)
}

// gin's own context carries no lock. Who asks with it for the lock of its request learns that at once, and does not wait for itself.
func TestContextOfGinIsRefused(t *testing.T) {
	l := wllocktest.New(t)
	nothing := func(context.Context) error { return nil }
	refused := func(c *gin.Context, name string) {
		_, ok := wllock.HeldKey(c, name, "1000")
		assert.False(t, ok)
		_, ok = wllock.HeldFrom(c)
		assert.False(t, ok)
		assert.ErrorContains(t, l.Do(c, name, "1000", nothing), "pass on the context of the request")
		assert.ErrorContains(t, l.DoAll(c, []wllock.Resource{{Name: name, Key: "1000"}}, nothing), "pass on the context of the request")
		assert.NoError(t, l.Do(c.Request.Context(), name, "1000", nothing))
	}
	outside := func(c *gin.Context) {
		c.Next()
		assert.NoError(t, l.Do(c, "customer", "1000", nothing), "the lock has been released")
	}
	between := func(c *gin.Context) {
		refused(c, "customer")
		c.Next()
		refused(c, "customer")
		assert.NoError(t, l.Do(c, "product", "1000", nothing), "the lock has been released")
	}
	for _, fallback := range []bool{false, true} {
		guards := []handler{outside, ginguard.New(l, "customer", guardtest.ByID), between, ginguard.New(l, "product", guardtest.ByID)}
		router := routes(append(guards, func(c *gin.Context) {
			refused(c, "product")
			refused(c, "customer")
			assert.NoError(t, l.Do(c, "stock", "1000", func(ctx context.Context) error { // a lock between does not help
				assert.ErrorContains(t, l.Do(ctx, "product", "1000", nothing), "pass on the context of the request")
				assert.ErrorContains(t, l.Do(ctx, "customer", "1000", nothing), "pass on the context of the request")
				assert.NoError(t, l.Do(ctx, "stock", "1000", nothing))
				return nil
			}))
			c.Status(http.StatusNoContent)
		})...)
		router.ContextWithFallback = fallback
		require.Equal(t, http.StatusNoContent, guardtest.Order(t, router).StatusCode)
	}
}

// gin gives the same context to the next request. A goroutine that outlives its request with it has no part in that request's lock, also if it
// takes another lock first.
func TestContextOfGinAfterItsRequest(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		l := wllocktest.New(t)
		var before *gin.Context
		again := false
		outlived := func(c *gin.Context, key string) error {
			return l.Do(c, "product", key, func(context.Context) error { return nil }, wllock.NoWait())
		}
		router := routes(ginguard.New(l, "product", guardtest.ByID), func(c *gin.Context) {
			if c != before {
				before = c
				return
			}
			again = true
			assert.Error(t, outlived(before, "1000"), "two are inside")
			assert.NoError(t, outlived(before, "2000"), "another product")
			assert.NoError(t, l.Do(before, "stock", "1", func(ctx context.Context) error {
				assert.Error(t, l.Do(ctx, "product", "1000", func(context.Context) error { return nil }, wllock.NoWait()), "two are inside")
				return nil
			}))
			_, ok := wllock.HeldFrom(before)
			assert.False(t, ok, "the fence of another request")
		})
		router.ContextWithFallback = fallback
		for try := 0; !again && try < 100; try++ { // a pool may drop what it gets
			router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/1000", nil))
			if !again {
				require.NoError(t, outlived(before, "1000"), "nobody has the lock")
			}
		}
		require.True(t, again)
	}
}
