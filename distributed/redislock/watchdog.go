package redislock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchdog pings a subscription every interval and closes it after two without a sign of life. A connection whose
// other end has vanished is silent for ever, and go-redis waits with it.
type watchdog struct {
	ps       *redis.PubSub
	interval func() time.Duration
	last     atomic.Int64 // when something came last, in Unix nanoseconds
	bitten   atomic.Bool  // the connection was closed for its silence
	done     chan struct{}
}

func (d *watchdog) hear() { d.last.Store(time.Now().UnixNano()) }

// run ends when ctx does, or with the connection; either way the subscription is closed by then.
func (d *watchdog) run(ctx context.Context) {
	defer close(d.done)
	defer func() { _ = d.ps.Close() }()
	for {
		every := d.interval()
		wait(ctx, every)
		if ctx.Err() != nil {
			return
		}
		if time.Since(time.Unix(0, d.last.Load())) > 2*every-every/4 { // looked at each interval: a quarter is for rounding
			d.bitten.Store(true)
			return
		}
		if d.ps.Ping(within(ctx, every)) != nil {
			return
		}
	}
}

// wait sleeps, but not past the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
