package frameworks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/frameworks"
	"github.com/wllock/wllock/middleware/httpguard"
)

// newGuard returns a guard with a lock per product, and its Locker.
func newGuard() (guard func(http.Handler) http.Handler, locker *wllock.Locker) {
	locker, err := wllock.New("order", memlock.New())
	if err != nil {
		panic(err)
	}
	return httpguard.New(locker, "product", httpguard.PathValue("id"), httpguard.WithCallOptions(wllock.NoWait())), locker
}

// demonstrate sends an order for product 1000, and another one while its lock is held elsewhere.
func demonstrate(h http.Handler, locker *wllock.Locker) {
	server := httptest.NewServer(h)
	defer server.Close()
	order := func() {
		resp, err := http.Post(server.URL+"/orders/1000", "text/plain", nil)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("X-Lock"))
	}
	order()
	busy, _ := locker.Acquire(context.Background(), "product", "1000")
	order()
	_ = busy.Release(context.Background())
	_ = locker.Close(context.Background())
}

// chi (5.1 or later, which sets path values) needs no adapter. It knows the route only after matching: use With, because Use at the
// top of the router is too early.
func Example_chi() {
	guard, locker := newGuard()
	router := chi.NewRouter()
	router.With(guard).Post("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		held, _ := wllock.HeldFrom(r.Context())
		w.Header().Set("X-Lock", held.Key())
	})
	demonstrate(router, locker)
	// Output:
	// 200 order:product:1000
	// 409
}

func Example_echoV4() {
	guard, locker := newGuard()
	router := echo.New()
	router.POST("/orders/:id", func(c echo.Context) error {
		held, _ := wllock.HeldFrom(c.Request().Context())
		c.Response().Header().Set("X-Lock", held.Key())
		return c.NoContent(http.StatusOK)
	}, frameworks.EchoV4(guard))
	demonstrate(router, locker)
	// Output:
	// 200 order:product:1000
	// 409
}
