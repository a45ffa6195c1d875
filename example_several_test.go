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

// A transfer needs the locks of both accounts. Transfers in opposite directions at the same time do not wait for each
// other in a circle, because DoAll acquires their locks in one order.
func ExampleLocker_DoAll() {
	locker, _ := wllock.New("bank", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()
	balance := map[string]*int{"alice": new(100), "bob": new(100)}

	transfer := func(from, to string, amount int) error {
		accounts := []wllock.Resource{{Name: "account", Key: from}, {Name: "account", Key: to}}
		return locker.DoAll(context.Background(), accounts, func(ctx context.Context) error {
			if *balance[from] < amount {
				return errors.New("not enough money")
			}
			*balance[from] -= amount // with a store: the fence of each account is wllock.HeldKey(ctx, "account", from)
			*balance[to] += amount
			return nil
		})
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { _ = transfer("alice", "bob", 3) })
		all.Go(func() { _ = transfer("bob", "alice", 3) })
	}
	all.Wait()
	fmt.Println(*balance["alice"]+*balance["bob"], transfer("alice", "bob", 1000))
	// Output: 200 not enough money
}

// A report reads the catalog, which many may read at once, and writes to the account of its customer.
func ExampleLocker_GuardAll() {
	locker, _ := wllock.New("shop", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	charge := locker.GuardAll([]wllock.Resource{
		{Name: "catalog", Key: "2026", Shared: true},
		{Name: "account", Key: "7"},
	}, func(ctx context.Context) error {
		for _, name := range []string{"account", "catalog"} {
			held, ok := wllock.HeldKey(ctx, name, map[string]string{"account": "7", "catalog": "2026"}[name])
			fmt.Println(held.Key(), ok)
		}
		return nil
	})
	fmt.Println(charge(context.Background()))
	// Output:
	// shop:account:7 true
	// shop:catalog:2026 true
	// <nil>
}

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
