package echoguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/echoguard"
	"github.com/wllock/wllock/middleware/httpguard"
)

// Orders of one product run one at a time; the second is refused while the lock is held elsewhere.
func Example() {
	locker, err := wllock.New("order", memlock.New(), wllock.WithOwnedBackend())
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())

	e := echo.New()
	guard := echoguard.New(locker, "product", httpguard.PathValue("id"), httpguard.WithCallOptions(wllock.NoWait()))
	e.POST("/orders/:id", func(c *echo.Context) error {
		held, _ := wllock.HeldFrom(c.Request().Context())
		return c.String(http.StatusOK, held.Key())
	}, guard)

	order := func() {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/1000", nil))
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
	// 200 text/plain; charset=UTF-8
	// 409 application/problem+json
}
