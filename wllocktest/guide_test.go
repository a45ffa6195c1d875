package wllocktest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// Orders sells from a stock. It is the application that docs/testing.md tests, with the tests below.
type Orders struct {
	Locks *wllock.Locker
	Stock *Stock
}

// ServeHTTP sells one piece.
func (o *Orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	product := r.PathValue("product")
	err := o.Locks.Do(r.Context(), "product", product, func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		return o.Stock.Take(ctx, product, held.Fence())
	}, wllock.WithWait(2*time.Second))
	w.WriteHeader(status(err))
}

func status(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errSoldOut):
		return http.StatusGone
	case errors.Is(err, wllock.ErrUnavailable), errors.Is(err, wllock.ErrLeaseLost), errors.Is(err, wllock.ErrLockTimeMax):
		return http.StatusServiceUnavailable
	case errors.Is(err, wllock.ErrQueueFull), errors.Is(err, wllock.ErrWaitTimeout):
		return http.StatusTooManyRequests
	default:
		return http.StatusInternalServerError
	}
}

var (
	errSoldOut   = errors.New("sold out")
	errOvertaken = errors.New("a later caller has written")
)

// Stock stands for the database: it compares fences, and takes a while.
type Stock struct {
	Left   int
	Takes  time.Duration
	During func() // called while a piece is taken; nil: nothing

	mu    sync.Mutex // guards what follows
	fence uint64     // the latest that was seen
}

// Take sells one piece, unless ctx ends first or a later caller has been here.
func (s *Stock) Take(ctx context.Context, _ string, fence uint64) error {
	s.mu.Lock()
	if fence > s.fence {
		s.fence = fence
	}
	left := s.Left
	s.mu.Unlock()
	if s.During != nil {
		s.During()
	}
	select {
	case <-time.After(s.Takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case fence < s.fence:
		return errOvertaken
	case left == 0:
		return errSoldOut
	}
	s.Left = left - 1
	return nil
}

// buy sends one order for the product and returns the status.
func buy(o *Orders, product string) int {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{product}", o)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/"+product, nil))
	return w.Code
}

func TestOrderIsSold(t *testing.T) {
	orders := &Orders{Locks: wllocktest.New(t), Stock: &Stock{Left: 1}}
	require.Equal(t, http.StatusOK, buy(orders, "1000"))
	require.Equal(t, http.StatusGone, buy(orders, "1000"))
}

func TestOrderIsRefusedWhenTheQueueIsFull(t *testing.T) {
	locker := wllocktest.New(t, wllock.WithThreshold(0)) // nobody may wait
	orders := &Orders{Locks: locker, Stock: &Stock{Left: 1}}
	release := wllocktest.Hold(t, locker, "product", "1000") // a caller in the way

	require.Equal(t, http.StatusTooManyRequests, buy(orders, "1000"))
	require.Equal(t, http.StatusOK, buy(orders, "2000"), "another product is free")
	release()
	require.Equal(t, 0, orders.Stock.Left)
}

func TestOrderGivesUpAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the two seconds take no time
		locker := wllocktest.New(t)
		orders := &Orders{Locks: locker, Stock: &Stock{Left: 1}}
		wllocktest.Hold(t, locker, "product", "1000")

		begun := time.Now()
		require.Equal(t, http.StatusTooManyRequests, buy(orders, "1000"))
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
}

func TestTwoServersDoNotOversell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t)
		stock := &Stock{Left: 10, Takes: 5 * time.Millisecond}
		servers := []*Orders{{locker, stock}, {faults.Process(), stock}} // another process with the same backend

		var buyers sync.WaitGroup
		var sold atomic.Int64
		for i := range 60 {
			buyers.Go(func() {
				if buy(servers[i%2], "1000") == http.StatusOK {
					sold.Add(1)
				}
			})
		}
		buyers.Wait()
		require.EqualValues(t, 10, sold.Load())
		require.Equal(t, 0, stock.Left)
	})
}

func TestOrderStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t)
		orders := &Orders{Locks: locker, Stock: &Stock{Left: 1, Takes: time.Hour}}
		orders.Stock.During = func() { faults.Lose("product", "1000") } // as a restart of the backend without its data

		require.Equal(t, http.StatusServiceUnavailable, buy(orders, "1000"))
		require.Equal(t, 1, orders.Stock.Left)
	})
}

func TestOvertakenOrderDoesNotWrite(t *testing.T) {
	locker, faults := wllocktest.NewWithFaults(t)
	stock := &Stock{Left: 2}
	first, second := &Orders{locker, stock}, &Orders{faults.Process(), stock}
	stock.During = func() {
		stock.During = nil
		faults.Lose("product", "1000")
		require.Equal(t, http.StatusOK, buy(second, "1000"), "the lock is free")
	}
	require.Equal(t, http.StatusInternalServerError, buy(first, "1000"), "it does not know yet, but the store does")
	require.Equal(t, 1, stock.Left)
}

func TestOrderWhileTheBackendIsDown(t *testing.T) {
	locker, faults := wllocktest.NewWithFaults(t)
	orders := &Orders{Locks: locker, Stock: &Stock{Left: 1}}
	faults.Partition() // refused at once
	require.Equal(t, http.StatusServiceUnavailable, buy(orders, "1000"))
	faults.Heal()
	require.Equal(t, http.StatusOK, buy(orders, "1000"))
}

func TestOrderWhileTheBackendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, faults := wllocktest.NewWithFaults(t)
		orders := &Orders{Locks: locker, Stock: &Stock{Left: 1}}
		faults.Hang() // no answer
		begun := time.Now()
		require.Equal(t, http.StatusServiceUnavailable, buy(orders, "1000"))
		require.LessOrEqual(t, time.Since(begun), 2*time.Second, "the customer does not wait longer than we said")
	})
}

// The guide shows these tests as they are.
func TestGuideShowsTheseTests(t *testing.T) {
	guide, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	database, err := os.ReadFile("../test/fenced/guide_test.go") // which needs a driver
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1)
	require.Greater(t, len(blocks), 5)
	for _, b := range blocks {
		require.Contains(t, string(source)+string(database), b[1])
	}
}
