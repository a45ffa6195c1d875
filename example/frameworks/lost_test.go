package frameworks_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
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
	gin.SetMode(gin.ReleaseMode)
	for name, route := range map[string]func(guard func(http.Handler) http.Handler) http.Handler{
		"chi": func(guard func(http.Handler) http.Handler) http.Handler {
			router := chi.NewRouter()
			router.Use(middleware.Logger) // wraps the writer
			router.With(guard).Post("/orders/{id}", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			return router
		},
		"echo": func(guard func(http.Handler) http.Handler) http.Handler {
			router := echo.New()
			router.POST("/orders/:id", func(c echo.Context) error {
				<-c.Request().Context().Done()
				return c.Request().Context().Err()
			}, frameworks.Echo(guard))
			return router
		},
		"gin": func(guard func(http.Handler) http.Handler) http.Handler {
			router := gin.New()
			router.POST("/orders/:id", frameworks.Gin(guard), func(c *gin.Context) { <-c.Request.Context().Done() })
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

// A request canceled while it waits gets no empty 200, and the handler does not run.
func TestGinCanceled(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1000")
	router := gin.New()
	router.Use(gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) { // as when SIGTERM ends all requests
		ctx, cancel := context.WithCancel(c.Request.Context())
		c.Request = c.Request.WithContext(ctx)
		time.AfterFunc(10*time.Millisecond, cancel)
	})
	router.POST("/orders/:id", frameworks.Gin(httpguard.New(l, "product", httpguard.PathValue("id"))),
		func(*gin.Context) { t.Error("run without the lock") })
	server := httptest.NewServer(router)
	defer server.Close()
	resp, err := http.Post(server.URL+"/orders/1000", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(resp.Status)
	}
}

// The guide contains the adapters to copy.
func TestGuideHasTheAdapters(t *testing.T) {
	guide, err := os.ReadFile("../../docs/middleware.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"echo.go", "gin.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(source), "\nfunc "); !strings.Contains(string(guide), string(source[at:])) {
			t.Errorf("docs/middleware.md lacks the code of %s", file)
		}
	}
}
