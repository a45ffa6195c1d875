package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

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
