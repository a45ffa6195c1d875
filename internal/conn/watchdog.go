package conn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchdog pings a subscription every interval and closes it after two without a sign of life (rule R10). A half-open
// connection is silent for ever, and go-redis would wait for ever.
type watchdog struct {
	ps       *redis.PubSub
	interval func() time.Duration
	last     atomic.Int64 // when something came last, in Unix nanoseconds
	silent   atomic.Bool  // the connection was closed because of its silence
	done     chan struct{}
}

// seen notes a sign of life.
func (d *watchdog) seen() { d.last.Store(time.Now().UnixNano()) }

// run ends when ctx does, or with the connection; either way the subscription is closed by then.
func (d *watchdog) run(ctx context.Context) {
	defer close(d.done)
	defer func() { _ = d.ps.Close() }()
	for {
		every := d.interval()
		sleep(ctx, every)
		if ctx.Err() != nil {
			return
		}
		if time.Since(time.Unix(0, d.last.Load())) > 2*every-every/4 { // checked each interval: a quarter allows for rounding
			d.silent.Store(true)
			return
		}
		if d.ps.Ping(Within(ctx, every)) != nil {
			return
		}
	}
}
