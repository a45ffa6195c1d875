package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// acquire is how a user of a Backend handles its answers.
func acquire(ctx context.Context, b distributed.Backend, req distributed.Request) (distributed.Lease, error) {
	lease, place, err := b.Enter(ctx, req)
	if place == nil {
		return lease, err
	}
	select {
	case lease, ok := <-place.Granted():
		if !ok {
			return acquire(ctx, b, req) // the place was lost
		}
		return lease, nil
	case <-ctx.Done():
		// A grant may have arrived at this moment. Leave releases it too, on a context that has not ended.
		giveUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return nil, errors.Join(ctx.Err(), place.Leave(giveUp))
	}
}

func Example() {
	ctx, backend := context.Background(), memlock.New()
	defer backend.Close()

	lease, err := acquire(ctx, backend, distributed.Request{Key: "order:product:1000", Instance: "a", TTL: 5 * time.Second})
	fmt.Println("a has it:", lease != nil, err)

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = acquire(short, backend, distributed.Request{Key: "order:product:1000", Instance: "b", TTL: 5 * time.Second})
	fmt.Println("b:", err)

	fmt.Println("a gives it back:", lease.Release(ctx))
	// Output:
	// a has it: true <nil>
	// b: context deadline exceeded
	// a gives it back: <nil>
}
