package frameworks_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/frameworks"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// A lost lock is answered with its problem behind the writer of each framework.
func TestLost(t *testing.T) {
	for name, route := range map[string]func(guard func(http.Handler) http.Handler) http.Handler{
		"chi": func(guard func(http.Handler) http.Handler) http.Handler {
			router := chi.NewRouter()
			router.Use(middleware.Logger) // wraps the writer
			router.With(guard).Post("/orders/{id}", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			return router
		},
		"echo v4": func(guard func(http.Handler) http.Handler) http.Handler {
			router := echo.New()
			router.POST("/orders/:id", func(c echo.Context) error {
				<-c.Request().Context().Done()
				return c.Request().Context().Err()
			}, frameworks.EchoV4(guard))
			return router
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t)
			guard := httpguard.New(l, "product", httpguard.PathValue("id"),
				httpguard.WithCallOptions(wllock.WithLockTimeMax(10*time.Millisecond)))
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/1000", nil)
			route(guard).ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "#lease-lost") {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		})
	}
}
