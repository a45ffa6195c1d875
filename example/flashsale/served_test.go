package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed/memlock"
)

// Two servers, each with its own Locker and connections, share one file.
func TestServersShareOneStock(t *testing.T) {
	const stock, buyers = 10, 20
	s := settings{DB: "sqlite:" + filepath.Join(t.TempDir(), "shop.db"), Stock: stock, Threshold: buyers, Wait: time.Minute}
	backend := memlock.New()
	var sold, gone atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		store := openStoreOn(t, s, backend)
		t.Cleanup(func() { assert.NoError(t, store.close(context.WithoutCancel(t.Context()))) })
		server := store.handler()
		for range buyers {
			all.Go(func() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/"+servedProduct, http.NoBody))
				switch w.Code {
				case http.StatusCreated:
					sold.Add(1)
				case http.StatusGone:
					gone.Add(1)
				default:
					t.Errorf("%d: %s", w.Code, w.Body)
				}
			})
		}
	}
	all.Wait()
	assert.EqualValues(t, stock, sold.Load())
	assert.EqualValues(t, 2*buyers-stock, gone.Load())
}
