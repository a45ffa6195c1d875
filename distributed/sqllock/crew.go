package sqllock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed/driver"
)

const (
	// maxIdleHands bounds the goroutines that wait for a request.
	maxIdleHands = 8
	// handPatience is how long they do.
	handPatience = time.Second
)

// crew runs requests. A goroutine that is done stays for a while, because its stack has grown: on a new one it would grow anew
// in the depths of a driver for every request, which costs a lone caller on SQLite a tenth of its time.
type crew struct {
	requests chan func() // without room: who sends has found one that waits
	idle     atomic.Int32
}

// run runs fn on a goroutine that Close waits for, and which rests until ctx ends. It reports false when the Backend is closed.
func (c *crew) run(ctx context.Context, client *driver.Backend[ours], fn func()) bool {
	select {
	case c.requests <- fn:
		return true
	default:
	}
	return client.Go(func() {
		for ; fn != nil; fn = c.rest(ctx) {
			fn()
		}
	})
}

// rest waits for the next request; nil: there will be none.
func (c *crew) rest(ctx context.Context) func() {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > maxIdleHands {
		return nil
	}
	timer := time.NewTimer(handPatience)
	defer timer.Stop()
	select {
	case fn := <-c.requests:
		return fn
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}
