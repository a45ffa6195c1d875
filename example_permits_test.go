package wllock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// A partner's API bears three calls at a time, over all processes. Each process would have a Locker; here, two share a backend.
func ExamplePermits() {
	ctx, backend := context.Background(), memlock.New()
	var lockers []*wllock.Locker
	for range 2 {
		l, err := wllock.New("order", backend, wllock.WithName("partner", wllock.Permits(3)))
		if err != nil {
			panic(err)
		}
		defer l.Close(ctx)
		lockers = append(lockers, l)
	}
	var inside, calls, most atomic.Int32
	call := func(context.Context) error {
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inside.Add(-1)
		time.Sleep(10 * time.Millisecond)
		calls.Add(1)
		return nil
	}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if err := lockers[i%2].Do(ctx, "partner", "acme", call); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	fmt.Println(calls.Load(), "calls, at most 3 at a time:", most.Load() <= 3)
	// Output:
	// 12 calls, at most 3 at a time: true
}
