package wllock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// observer reports what happens to locks. It alone counts for Stats, measures for OpenTelemetry, and logs.
type observer struct {
	system    string
	logger    *slog.Logger
	telemetry *telemetry  // nil: nobody measures
	degraded  func() bool // locks are held without leases now; nil: never, unless LocalOnly
	notifier
}

// began is called before a caller waits; the span it starts ends with acquired and ended, or with refused. Like those, it
// is small where nobody measures.
func (o *observer) began(ctx context.Context, c *call) context.Context {
	if o.telemetry == nil || o.telemetry.tracer == nil {
		return ctx
	}
	return o.telemetry.start(ctx, c)
}

// acquired is called when the caller has the lock.
func (o *observer) acquired(ctx context.Context, c *call) {
	c.name.held.Add(1)
	c.name.acquired.Add(1)
	if c.use.Handoff() {
		c.name.handoffs.Add(1)
	}
	if o.telemetry != nil {
		o.telemetry.acquired(ctx, c)
	}
}

// refused is called instead of acquired.
func (o *observer) refused(ctx context.Context, c *call, e *Error, why outcome) {
	if c.mode == distributed.Exclusive && (c.turn.Queued() || e.Tier == TierDistributed) {
		c.name.wait.took(time.Since(c.turnAt)) // a caller that leaves the line delays those behind it by no time at all
	}
	switch why {
	case queueFull:
		c.name.shed.Add(1)
	case unavailable:
		c.name.unavailable.Add(1)
	case timedOut:
		c.name.timeouts.Add(1)
	}
	if o.telemetry != nil {
		o.telemetry.refused(ctx, c, e, why)
	}
}

// ended is called when the functions of a hold have returned. lost: its lease had expired by then.
func (o *observer) ended(ctx context.Context, c *call, now time.Time, lost bool) {
	degraded := o.count(c, now, lost)
	if o.telemetry != nil {
		o.telemetry.ended(ctx, c, now, lost, degraded)
	}
}

// lost is called instead of ended when a hold has lost its lease.
func (o *observer) lost(ctx context.Context, c *call) {
	now := time.Now()
	degraded := o.count(c, now, true)
	o.notify(func() {
		if o.telemetry != nil {
			o.telemetry.ended(ctx, c, now, true, degraded)
		}
		o.logHold(ctx, "lock lost while held", c)
	})
}

// count updates the counters when a turn ends.
func (o *observer) count(c *call, now time.Time, lost bool) (degraded bool) {
	turn := now.Sub(c.turnAt)
	c.name.took(turn)
	if c.mode == distributed.Exclusive {
		c.name.wait.took(turn)
	}
	if lost {
		c.name.lost.Add(1)
	}
	degraded = o.degraded != nil && c.use.Degraded()
	if degraded {
		c.name.degraded.Add(1)
	}
	c.name.held.Add(-1)
	return degraded
}

// overstayed is called when a hold has lasted for LockTimeMax.
func (o *observer) overstayed(ctx context.Context, c *call) {
	c.name.overstays.Add(1)
	o.notify(func() { o.logHold(ctx, "lock held for longer than its maximum", c) })
}

// releaseFailed implements tenure.Config.Failed. If the answer is that the lock was lost, no hold noticed the loss: it
// would have ended with the lease.
func (o *observer) releaseFailed(tag any, key string, err error) {
	n, ctx := tag.(*nameState), context.Background()
	if errors.Is(err, distributed.ErrLeaseLost) {
		n.lost.Add(1)
		o.notify(func() {
			if o.telemetry != nil {
				o.telemetry.lost(ctx, n)
			}
			o.warn(ctx, "lock was lost before it was released", n, key)
		})
		return
	}
	if o.degraded != nil && o.degraded() {
		return // the outage has been logged, and nobody here waits for the lease to expire
	}
	o.notify(func() {
		o.warn(ctx, "lock not released: others wait until its lease has expired", n, key, slog.String("error", err.Error()))
	})
}

// renewed implements tenure.Config.Renewed; it is set only if somebody measures.
func (o *observer) renewed(tag any, err error) { o.telemetry.renewed(tag.(*nameState), err) }

func (o *observer) logHold(ctx context.Context, what string, c *call) {
	o.warn(ctx, what, c.name, c.key, slog.Uint64("fence", c.use.Fence()),
		slog.Duration("held", time.Since(c.use.Began())), slog.String("mode", c.mode.String()))
}

// warn includes the key only for a logger that takes debug lines, because keys may hold personal data.
func (o *observer) warn(ctx context.Context, what string, n *nameState, key string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("system", o.system), slog.String("name", n.name))
	if o.logger.Enabled(ctx, slog.LevelDebug) {
		attrs = append(attrs, slog.String("key", nametext.Quote(key)))
	}
	o.logger.LogAttrs(ctx, slog.LevelWarn, what, attrs...)
}

// notifier runs loggers and exporters on goroutines of their own, so that a slow one cannot delay renewals or hand-offs.
// Each call has a goroutine, because such events are rare.
type notifier struct {
	mu    sync.Mutex
	calls int           // guarded by mu
	idle  chan struct{} // guarded by mu; closed when calls is 0 again
}

func (n *notifier) notify(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls == 0 {
		n.idle = make(chan struct{})
	}
	n.calls++
	go func() {
		defer n.done()
		f()
	}()
}

func (n *notifier) done() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls--; n.calls == 0 {
		close(n.idle)
	}
}

// flush waits until all calls have returned, or ctx ends.
func (n *notifier) flush(ctx context.Context) {
	n.mu.Lock()
	idle, waits := n.idle, n.calls > 0
	n.mu.Unlock()
	if waits {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}
