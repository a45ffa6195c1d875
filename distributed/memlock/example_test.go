package memlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// Two instances ask for one key. The second is queued, and gets the lock when the first releases it.
func Example() {
	ctx, backend := context.Background(), memlock.New()
	defer backend.Close()
	ask := distributed.Request{Key: "order:product:1000", TTL: 5 * time.Second}

	ask.Instance = "server-1"
	first, _, _ := backend.Enter(ctx, ask)
	ask.Instance = "server-2"
	_, place, _ := backend.Enter(ctx, ask)
	fmt.Println("contended:", first.Contended())

	older, _ := first.NextFence()
	first.Release(ctx)
	second := <-place.Granted()
	defer second.Release(ctx)
	newer, _ := second.NextFence()
	fmt.Println("the fence has grown:", newer > older)
	// Output:
	// contended: true
	// the fence has grown: true
}
