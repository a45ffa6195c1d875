package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
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
	locker, err := wllock.New("order", backend, wllock.WithOutage(wllock.LocalOnly), wllock.WithLeaseTTL(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
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
	err = locker.Do(context.Background(), "product", "1000", sell, wllock.WithWait(time.Second))
	backend.Partition(false)
	fmt.Println(err)
	// Output:
	// sold
	// noted for later; fence 0
	// <nil>
}

// A refused caller learns who has the lock; an operator ends a lease that is stuck.
func ExampleLocker_Inspect() {
	ctx, backend := context.Background(), memlock.New()
	defer backend.Close()
	locker, err := wllock.New("order", backend, wllock.WithInstance("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
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
