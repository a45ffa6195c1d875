package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Three processes start the same job at every tick, each by its own clock. One of them runs it.
func ExampleWithHoldAtLeast() {
	backend := memlock.New() // between processes: redislock.Open
	var reports atomic.Int64
	report := func(context.Context) error { reports.Add(1); return nil }

	var processes sync.WaitGroup
	for n := range 3 {
		processes.Go(func() {
			locker, _ := wllock.New("shop", backend)
			defer func() { _ = locker.Close(context.Background()) }() // does not wait for the hold
			time.Sleep(time.Duration(n) * 10 * time.Millisecond)      // the clocks differ

			err := locker.Do(context.Background(), "cron", "report", report, wllock.NoWait(), wllock.WithHoldAtLeast(30*time.Second))
			if err != nil && !errors.Is(err, wllock.ErrHeld) { // ErrHeld: another process has run it
				fmt.Println(err)
			}
		})
	}
	processes.Wait()
	fmt.Println(reports.Load())
	// Output: 1
}

// Every process calls Lead. One of them leads, until its context ends or it loses the lock; then another does.
func ExampleLocker_Lead() {
	backend := memlock.New() // between processes: redislock.Open
	process := func(ctx context.Context, name string, leading chan<- string) error {
		locker, _ := wllock.New("shop", backend)
		defer func() { _ = locker.Close(context.Background()) }()
		return locker.Lead(ctx, "leader", "outbox", func(ctx context.Context) error {
			held, _ := wllock.HeldFrom(ctx)
			_ = held.Fence() // for the store: it grows with every leader
			leading <- name
			<-ctx.Done() // work until the lock is lost, or the process is to end
			return ctx.Err()
		})
	}
	leading := make(chan string)
	first, endFirst := context.WithCancel(context.Background())
	second, endSecond := context.WithCancel(context.Background())
	var processes sync.WaitGroup
	processes.Go(func() { _ = process(first, "first", leading) })
	fmt.Println(<-leading)
	processes.Go(func() { _ = process(second, "second", leading) })
	endFirst()
	fmt.Println(<-leading)
	endSecond()
	processes.Wait()
	// Output:
	// first
	// second
}

// A service that does nothing without locks is not ready while none can be acquired.
func ExampleLocker_Health() {
	locker, _ := wllock.New("shop", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	ready := func(w http.ResponseWriter, _ *http.Request) {
		if h := locker.Health(); !h.Available {
			http.Error(w, "no locks since "+h.Since.Format(time.RFC3339), http.StatusServiceUnavailable)
		}
	}
	answer := httptest.NewRecorder()
	ready(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Println(answer.Code)
	// Output: 200
}
