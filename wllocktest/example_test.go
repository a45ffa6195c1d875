package wllocktest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// Shop is the application under test.
type Shop struct {
	locks *wllock.Locker
	stock int
}

// Buy sells one piece, or asks the customer to return later if the queue is full.
func (s *Shop) Buy(ctx context.Context) (answer string, err error) {
	err = s.locks.Do(ctx, "product", "1000", func(context.Context) error {
		s.stock--
		answer = fmt.Sprintf("sold, %d left", s.stock)
		return nil
	}, wllock.NoWait(), wllock.WithFallback(func(context.Context, error) error {
		answer = "try again"
		return nil
	}))
	return answer, err
}

// Tests get a Locker with New, and Hold adds a competing holder.
func Example() {
	testShop := func(t testing.TB) {
		locker := wllocktest.New(t)
		shop := &Shop{locks: locker, stock: 3}

		release := wllocktest.Hold(t, locker, "product", "1000")
		fmt.Println(shop.Buy(t.Context()))

		release()
		fmt.Println(shop.Buy(t.Context()))
	}

	run(testShop) // go test does this
	// Output:
	// try again <nil>
	// sold, 2 left <nil>
}

// NewWithFaults provokes what is hard to wait for.
func ExampleNewWithFaults() {
	testShop := func(t testing.TB) {
		locker, faults := wllocktest.NewWithFaults(t)

		err := locker.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
			faults.Lose("product", "1000")
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			return nil
		})
		fmt.Println(err)

		faults.Partition()
		fmt.Println(locker.Ping(t.Context()) != nil)
	}

	run(testShop)
	// Output:
	// lease lost
	// wllock: hold "test:product:1000": lease lost
	// true
}

// run gives test what it needs of a testing.T, because examples have none.
func run(test func(t testing.TB)) {
	r := &recorder{}
	test(r)
	r.end()
	for _, failure := range r.errors {
		fmt.Println(failure)
	}
}
