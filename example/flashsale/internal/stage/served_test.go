package stage

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
	"github.com/wllock/wllock/internal/testproc"
)

// Two servers in processes of their own, with nothing in common but a file and the one beside it.
func TestProcessesShareOneStock(t *testing.T) {
	const stock, buyers = 10, 12
	file := filepath.Join(t.TempDir(), "shop.db")
	var sold, gone atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		server := launchServer(t, "-db "+file+" -stock "+fmt.Sprint(stock))
		for range buyers {
			all.Go(func() {
				switch answer := untilAnswered(t, "http://"+server.Addr); answer {
				case http.StatusCreated:
					sold.Add(1)
				case http.StatusGone:
					gone.Add(1)
				default:
					t.Errorf("answered %d", answer)
				}
			})
		}
	}
	all.Wait()
	assert.EqualValues(t, stock, sold.Load())
	assert.EqualValues(t, 2*buyers-stock, gone.Load())
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
