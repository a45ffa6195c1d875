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

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/guardtest"
	"github.com/wllock/wllock/middleware/ginguard"
	"github.com/wllock/wllock/wllocktest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

// framework is what all tests of guards need.
var framework = guardtest.Framework[gin.HandlerFunc, handler]{
	New: ginguard.New, NewAll: ginguard.NewAll, Adapt: ginguard.Adapt, Handle: handle, Routes: routes, Behind: behind, Recovered: recovered,
}

func TestGuard(t *testing.T) { framework.Test(t) }

type handler = gin.HandlerFunc

// handle makes a handler of the framework.
func handle(f func(*http.Request, http.ResponseWriter)) handler {
	return func(c *gin.Context) { f(c.Request, c.Writer) }
}

// routes serves orders behind the guard.
func routes(guard, h handler) http.Handler {
	router := gin.New()
	router.POST("/orders/:id", guard, h)
	return router
}

// behind calls outer after the guard and the handler.
func behind(outer func(*http.Request), guard, h handler) http.Handler {
	router := gin.New()
	router.POST("/orders/:id", func(c *gin.Context) {
		c.Next()
		outer(c.Request)
	}, guard, h)
	return router
}

func recovered(guard, h handler) http.Handler {
	router := gin.New()
	router.Use(gin.RecoveryWithWriter(io.Discard))
	router.POST("/orders/:id", guard, h)
	return router
}

// A request that is canceled while it waits gets no empty 200, and the handler does not run.
func TestCanceledWhileItWaits(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1000")
	h := guardtest.Canceled(recovered(ginguard.New(l, "product", guardtest.ByID), framework.Never(t)))
	require.Equal(t, http.StatusServiceUnavailable, guardtest.Order(t, h).StatusCode)
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

// gin's own context, which is easily given to a guard inside, carries the lock like that of the request.
func TestContextOfGinCarriesTheLock(t *testing.T) {
	l := wllocktest.New(t)
	nothing := func(context.Context) error { return nil }
	inside := func(c *gin.Context, name string) {
		_, ok := wllock.HeldKey(c, name, "1000")
		assert.True(t, ok)
		assert.NoError(t, l.Do(c, name, "1000", nothing, wllock.NoWait()))
		assert.NoError(t, l.DoAll(c, []wllock.Resource{{Name: name, Key: "1000"}}, nothing, wllock.NoWait()))
	}
	none := func(c *gin.Context) {
		c.Next()
		_, ok := wllock.HeldFrom(c)
		assert.False(t, ok)
	}
	between := func(c *gin.Context) {
		inside(c, "customer")
		c.Next()
		inside(c, "customer")
		_, ok := wllock.HeldKey(c, "product", "1000")
		assert.False(t, ok)
	}
	for _, fallback := range []bool{false, true} {
		router := gin.New()
		router.ContextWithFallback = fallback
		router.POST("/orders/:id", none, ginguard.New(l, "customer", guardtest.ByID), between, ginguard.New(l, "product", guardtest.ByID), func(c *gin.Context) {
			inside(c, "product")
			inside(c, "customer")
			c.Status(http.StatusNoContent)
		})
		require.Equal(t, http.StatusNoContent, guardtest.Order(t, router).StatusCode)
	}
}
