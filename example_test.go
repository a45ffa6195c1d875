package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func Example() {
	locker, err := wllock.New("order", memlock.New()) // for several processes: redislock.Open instead of memlock
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(context.Background()) }() // waits for holders and releases everything

	stock := 100
	err = locker.Do(context.Background(), "product", "1000", func(ctx context.Context) error {
		stock-- // one at a time, over all processes
		return nil
	})
	fmt.Println(stock, err)
	// Output: 99 <nil>
}

func ExampleLocker_Do() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	err := locker.Do(context.Background(), "product", "1000", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fmt.Println(held.Key(), held.Fence() > 0)
		return nil
	}, wllock.WithWait(2*time.Second))
	switch {
	case errors.Is(err, wllock.ErrQueueFull):
		fmt.Println("too many buyers, try later")
	case errors.Is(err, wllock.ErrWaitTimeout):
		fmt.Println("took too long")
	case err != nil:
		fmt.Println(err)
	}
	// Output: order:product:1000 true
}

func ExampleLocker_Guard() {
	locker, _ := wllock.New("report", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	nightly := locker.Guard("job", "nightly", func(ctx context.Context) error {
		fmt.Println("only one process does this")
		return nil
	}, wllock.NoWait())
	fmt.Println(nightly(context.Background()))
	// Output:
	// only one process does this
	// <nil>
}

func ExampleCall() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	left, err := wllock.Call(context.Background(), locker, "product", "1000",
		func(context.Context) (int, error) { return 42, nil })
	fmt.Println(left, err)
	// Output: 42 <nil>
}

func ExampleWrap() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	type order struct{ product string }
	buy := wllock.Wrap(locker, "product",
		func(o order) string { return o.product },
		func(ctx context.Context, o order) (string, error) { return "sold " + o.product, nil })
	fmt.Println(buy(context.Background(), order{"1000"}))
	// Output: sold 1000 <nil>
}

func ExampleWrapOr() {
	locker, _ := wllock.New("order", memlock.New(), wllock.WithThreshold(0))
	defer func() { _ = locker.Close(context.Background()) }()

	buy := wllock.WrapOr(locker, "product",
		func(product string) string { return product },
		func(ctx context.Context, product string) (string, error) { return "sold", nil },
		func(ctx context.Context, product string, err error) (string, error) {
			return "sold out, try later", nil
		})

	busy, _ := locker.Acquire(context.Background(), "product", "1000")
	fmt.Println(buy(context.Background(), "1000"))
	_ = busy.Release(context.Background())
	fmt.Println(buy(context.Background(), "1000"))
	// Output:
	// sold out, try later <nil>
	// sold <nil>
}

func ExampleLocker_Acquire() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	lock, err := locker.Acquire(context.Background(), "product", "1000", wllock.WithWait(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Key(), lock.Err())                     // lock.Context() ends when the lock is lost
	fmt.Println(lock.Release(context.Background()))         // ErrLeaseLost if it was lost before
	fmt.Println(errors.Is(lock.Err(), wllock.ErrLeaseLost)) // it is no longer held
	// Output:
	// order:product:1000 <nil>
	// <nil>
	// true
}

func ExampleWithFallback() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()
	busy, _ := locker.Acquire(context.Background(), "product", "1000")
	defer func() { _ = busy.Release(context.Background()) }()

	err := locker.Do(context.Background(), "product", "1000",
		func(context.Context) error { return nil },
		wllock.NoWait(),
		wllock.WithFallback(func(ctx context.Context, err error) error {
			var why *wllock.Error
			errors.As(err, &why)
			return fmt.Errorf("busy in the %s tier, try later", why.Tier)
		}))
	fmt.Println(err)
	// Output: busy in the local tier, try later
}

func ExampleWithShedHopeless() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()
	err := locker.Do(context.Background(), "product", "1000",
		func(context.Context) error { return nil },
		wllock.WithWait(200*time.Millisecond), // useless to anybody after that,
		wllock.WithShedHopeless())             // so do not even queue if it will take longer
	switch {
	case errors.Is(err, wllock.ErrQueueFull):
		fmt.Println("too many before us, at once")
	case errors.Is(err, wllock.ErrWaitTimeout):
		fmt.Println("waited in vain")
	default:
		fmt.Println(err)
	}
	// Output: <nil>
}

func ExampleShared() {
	locker, _ := wllock.New("catalog", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	err := locker.Do(context.Background(), "page", "1", func(ctx context.Context) error {
		// other readers are inside as well, but no writer
		return nil
	}, wllock.Shared())
	fmt.Println(err)
	// Output: <nil>
}

func ExampleHeldFrom() {
	locker, _ := wllock.New("order", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	write := func(ctx context.Context) error { // deep inside: refuses to work without the lock
		held, ok := wllock.HeldKey(ctx, "product", "1000")
		if !ok {
			return errors.New("not under the product's lock")
		}
		return held.Err() // not nil as soon as the lease has expired by the clock
	}
	fmt.Println(write(context.Background()))
	fmt.Println(locker.Do(context.Background(), "product", "1000", write))
	// Output:
	// not under the product's lock
	// <nil>
}

// With LocalOnly, callers are admitted without a lease after the backend has been unreachable for one TTL. What they do
// then must be right even if others are inside.
func ExampleWithOutage() {
	backend := memlock.New()
	locker, _ := wllock.New("order", backend, wllock.WithOutage(wllock.LocalOnly), wllock.WithLeaseTTL(100*time.Millisecond))
	defer func() { _ = locker.Close(context.Background()) }()
	sell := func(ctx context.Context) error {
		if held, _ := wllock.HeldFrom(ctx); held.Degraded() {
			fmt.Println("noted for later; fence", held.Fence())
			return nil
		}
		fmt.Println("sold")
		return nil
	}

	_ = locker.Do(context.Background(), "product", "1000", sell)
	backend.Partition(true)
	err := locker.Do(context.Background(), "product", "1000", sell, wllock.WithWait(time.Second))
	backend.Partition(false)
	fmt.Println(err)
	// Output:
	// sold
	// noted for later; fence 0
	// <nil>
}

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

	needed := []wllock.Resource{{Name: "catalog", Key: "2026", Shared: true}, {Name: "account", Key: "7"}}
	charge := locker.GuardAll(needed, func(ctx context.Context) error {
		for _, r := range needed {
			held, ok := wllock.HeldKey(ctx, r.Name, r.Key)
			fmt.Println(held.Key(), ok)
		}
		return nil
	})
	fmt.Println(charge(context.Background()))
	// Output:
	// shop:catalog:2026 true
	// shop:account:7 true
	// <nil>
}

// A partner's API bears three calls at a time, over all processes. Each process would have a Locker; here, two share a backend.
func ExamplePermits() {
	ctx, backend := context.Background(), memlock.New()
	var lockers []*wllock.Locker
	for range 2 {
		l, _ := wllock.New("order", backend, wllock.WithName("partner", wllock.Permits(3)))
		defer func() { _ = l.Close(ctx) }()
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
	// Output: 12 calls, at most 3 at a time: true
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

// A refused caller learns who has the lock; an operator ends a lease that is stuck.
func ExampleLocker_Inspect() {
	ctx, backend := context.Background(), memlock.New()
	locker, _ := wllock.New("order", backend, wllock.WithInstance("web-1"), wllock.WithOwnedBackend())
	defer func() { _ = locker.Close(ctx) }()

	err := locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
		refused, _ := errors.AsType[*wllock.Error](locker.Do(context.Background(), "product", "1000",
			func(context.Context) error { return nil }, wllock.NoWait()))
		fmt.Println("held by this Locker:", refused.Holder == locker.Instance())

		found, err := locker.Inspect(ctx, "product", "1000")
		if err != nil {
			return err
		}
		fmt.Println(found.Key, found.Mode, len(found.Waiters), "wait")

		inspector, _ := distributed.InspectorOf(backend)
		_, err = inspector.Break(ctx, found, "the operator", "it is stuck")
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return err
	})
	fmt.Println(errors.Is(err, wllock.ErrLeaseLost))
	// Output:
	// held by this Locker: true
	// order:product:1000 exclusive 0 wait
	// lease lost
	// true
}
