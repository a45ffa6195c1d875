package ginguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/ginguard"
	"github.com/wllock/wllock/middleware/httpguard"
)

// Orders of one product run one at a time; the second is refused while the lock is held elsewhere.
func Example() {
	locker, err := wllock.New("order", memlock.New(), wllock.WithOwnedBackend())
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())

	router := gin.New()
	guard := ginguard.New(locker, "product", httpguard.PathValue("id"), httpguard.WithCallOptions(wllock.NoWait()))
	router.POST("/orders/:id", guard, func(c *gin.Context) {
		held, _ := wllock.HeldFrom(c.Request.Context())
		c.String(http.StatusOK, "%s", held.Key())
	})

	order := func() {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/1000", nil))
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	order()
	busy, err := locker.Acquire(context.Background(), "product", "1000")
	if err != nil {
		panic(err)
	}
	order()
	_ = busy.Release(context.Background())
	// Output:
	// 200 text/plain; charset=utf-8
	// 409 application/problem+json
}
