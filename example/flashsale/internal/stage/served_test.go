package stage

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
	"github.com/wllock/wllock/internal/testproc"
)

// Two servers, each with its own Locker and connections, share one file.
func TestServersShareOneStock(t *testing.T) {
	const stock, buyers = 10, 20
	s := sale.Settings{DB: "sqlite:" + filepath.Join(t.TempDir(), "shop.db"), Stock: stock, Threshold: buyers, Wait: time.Minute}
	backend := memlock.New()
	var sold, gone atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		store := openTestStore(t, s, backend)
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

// Two servers in processes of their own, with nothing in common but a file and the one beside it.
func TestProcessesShareOneStock(t *testing.T) {
	const stock, buyers = 10, 12
	file := filepath.Join(t.TempDir(), "shop.db")
	var sold atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		server := launchServer(t, "-db "+file+" -stock "+fmt.Sprint(stock))
		for range buyers {
			all.Go(func() {
				if untilAnswered(t, "http://"+server.Addr) == http.StatusCreated {
					sold.Add(1)
				}
			})
		}
	}
	all.Wait()
	assert.EqualValues(t, stock, sold.Load())
	shop, err := sqlshop.Open("sqlite:"+file, 1, nil)
	require.NoError(t, err)
	defer shop.Close()
	a, err := shop.Audit(t.Context(), servedProduct)
	require.NoError(t, err)
	assert.Equal(t, sqlshop.Audit{Sold: stock}, a)
}

// launchServer starts the program with -serve and those flags, until the test ends.
func launchServer(t *testing.T, flags string) *testproc.Server {
	return testproc.Launch(t, testproc.Spec{
		Name: "flashsale", FirstPort: 20000, LastPort: 32000,
		Command: func(s *testproc.Server) testproc.Command {
			self, err := os.Executable()
			require.NoError(t, err)
			return testproc.Command{Path: self, Env: []string{programVariable + "=-serve " + s.Addr + " " + longLease + flags}}
		},
		Ready: func(s *testproc.Server) bool {
			return bytes.Contains(testproc.Ask(s.Addr, []byte("GET /metrics HTTP/1.0\r\n\r\n")), []byte("200 OK"))
		},
	})
}

// untilAnswered orders until the answer is final: sold, or sold out.
func untilAnswered(t *testing.T, base string) (status int) {
	for {
		switch status = post(t, http.DefaultClient, base); status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable: // a busy machine
		default:
			return status
		}
	}
}
