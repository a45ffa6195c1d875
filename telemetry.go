package wllock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope names the library as the source of its measurements.
const scope = "github.com/wllock/wllock"

// buckets are the boundaries, in seconds, that tell times apart: from a hand-off within the process to the longest waits.
var buckets metric.Float64HistogramOption = metric.WithExplicitBucketBoundaries(
	.00001, .0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)

// telemetry is what a Locker reports to OpenTelemetry. No attribute of a metric is a key: there are too many keys.
type telemetry struct {
	system                  attribute.KeyValue
	tracer                  trace.Tracer // nil: no spans
	spanKeys                bool
	acquire, hold           metric.Float64Histogram
	sheds, handoffs, losses metric.Int64Counter
	renewals, degradations  metric.Int64Counter
	registration            metric.Registration // nil: no metrics
}

// newTelemetry returns nil if no provider was given. degraded is asked whether locks are held without leases now; nil:
// nothing to ask.
func newTelemetry(n *names, degraded func() bool) (*telemetry, error) {
	s := n.settings
	if s.tracers == nil && s.meters == nil {
		return nil, nil
	}
	t := &telemetry{system: attribute.String("wllock.system", n.system), spanKeys: s.spanKeys}
	if s.tracers != nil {
		t.tracer = s.tracers.Tracer(scope)
	}
	if s.meters == nil {
		return t, nil
	}
	m := s.meters.Meter(scope)
	var err error
	t.acquire = instrument(&err, m.Float64Histogram, "wllock.acquire.duration", "s",
		"Time spent waiting for a lock, by tier and outcome", buckets)
	t.hold = instrument(&err, m.Float64Histogram, "wllock.hold.duration", "s", "Time a lock was held", buckets)
	t.sheds = instrument(&err, m.Int64Counter, "wllock.sheds", "{request}", "Requests refused because the local queue was full")
	t.handoffs = instrument(&err, m.Int64Counter, "wllock.handoffs", "{handoff}", "Locks served from a running tenure")
	t.losses = instrument(&err, m.Int64Counter, "wllock.losses", "{lock}", "Locks lost while held")
	t.renewals = instrument(&err, m.Int64Counter, "wllock.renewals", "{renewal}", "Renewals of leases, by outcome")
	t.degradations = instrument(&err, m.Int64Counter, "wllock.degradations", "{lock}",
		"Locks held without a lease when they ended, because the backend was unreachable")
	if err != nil {
		return t, err
	}
	return t, t.observe(m, n, degraded)
}

// observe registers what the provider asks for by itself.
func (t *telemetry) observe(m metric.Meter, n *names, degraded func() bool) (err error) {
	waiting := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.waiter.count", "{waiter}", "Callers waiting in a local queue")
	held := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.lock.count", "{lock}", "Locks held")
	limit := instrument(&err, m.Int64ObservableGauge, "wllock.waiter.limit", "{waiter}", "Callers that may wait per key; -1: any number")
	local := instrument(&err, m.Int64ObservableGauge, "wllock.degraded", "{locker}",
		"1 while locks are held within the process only, because the backend is unreachable")
	if err != nil {
		return err
	}
	t.registration, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, state := range n.all() {
			o.ObserveInt64(waiting, state.waiting.Load(), t.of(state))
			o.ObserveInt64(held, state.held.Load(), t.of(state))
			o.ObserveInt64(limit, int64(state.threshold(&state.options)), t.of(state))
		}
		switch of := metric.WithAttributes(t.system); {
		case degraded == nil:
		case degraded():
			o.ObserveInt64(local, 1, of)
		default:
			o.ObserveInt64(local, 0, of)
		}
		return nil
	}, waiting, held, limit, local)
	return err
}

// instrument makes an instrument and collects the error. Option is the kind's own type of option; unit and description
// are options of every kind.
func instrument[Instrument, Option any](errs *error, create func(string, ...Option) (Instrument, error),
	name, unit, doc string, more ...Option) Instrument {
	options := append(more, any(metric.WithUnit(unit)).(Option), any(metric.WithDescription(doc)).(Option))
	i, err := create(name, options...)
	*errs = errors.Join(*errs, err)
	return i
}

// close ends what the provider asks for by itself: the provider outlives the Locker, and would keep it in memory.
func (t *telemetry) close() error {
	if t == nil || t.registration == nil {
		return nil
	}
	return t.registration.Unregister()
}

// of returns the attributes of a name.
func (t *telemetry) of(n *nameState, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, t.system, attribute.String("wllock.name", n.name))...)
}

// count adds one if anybody counts: the attributes are most of what that costs.
func (t *telemetry) count(ctx context.Context, c metric.Int64Counter, n *nameState) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, t.of(n))
	}
}

// start starts the span of an acquisition.
func (t *telemetry) start(ctx context.Context, c *call) context.Context {
	ctx, span := t.tracer.Start(ctx, "wllock.acquire", trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(t.system, attribute.String("wllock.name", c.name.name)))
	if !span.IsRecording() { // nobody would see what follows
		return ctx
	}
	c.span = span
	if t.spanKeys {
		c.span.SetAttributes(attribute.String("wllock.key", c.key))
	}
	return ctx
}

func (t *telemetry) acquired(ctx context.Context, c *call) {
	if c.span != nil {
		t.queued(c)
		c.span.AddEvent("acquired", trace.WithAttributes(attribute.Bool("wllock.handoff", c.use.Handoff())))
	}
	if t.acquire == nil {
		return
	}
	t.waited(ctx, c, TierLocal, c.localWait, "acquired")
	t.waited(ctx, c, TierDistributed, c.distributedWait(), "acquired")
	if c.use.Handoff() {
		t.count(ctx, t.handoffs, c.name)
	}
}

func (t *telemetry) refused(ctx context.Context, c *call, e *Error, why outcome) {
	reason := why.String()
	if c.span != nil {
		t.queued(c)
		c.span.SetAttributes(attribute.String("wllock.tier", string(e.Tier)), attribute.String("error.type", reason))
		c.span.SetStatus(codes.Error, reason)
		c.span.End()
	}
	if t.acquire == nil {
		return
	}
	if e.Tier == TierLocal {
		t.waited(ctx, c, TierLocal, e.LocalWait, reason)
	} else {
		t.waited(ctx, c, TierLocal, e.LocalWait, "acquired") // it had got its turn
		t.waited(ctx, c, TierDistributed, e.DistributedWait, reason)
	}
	if why == queueFull {
		t.count(ctx, t.sheds, c.name)
	}
}

func (t *telemetry) ended(ctx context.Context, c *call, now time.Time, lost, degraded bool) {
	if c.span != nil {
		if degraded {
			c.span.AddEvent("degraded")
		}
		if lost {
			c.span.AddEvent("lost")
			c.span.SetStatus(codes.Error, "lease_lost")
		}
		c.span.End()
	}
	if t.hold == nil {
		return
	}
	if t.hold.Enabled(ctx) {
		t.hold.Record(ctx, now.Sub(c.use.Began()).Seconds(), t.of(c.name))
	}
	if lost {
		t.lost(ctx, c.name)
	}
	if degraded {
		t.count(ctx, t.degradations, c.name)
	}
}

func (t *telemetry) lost(ctx context.Context, n *nameState) {
	if t.losses != nil {
		t.count(ctx, t.losses, n)
	}
}

// renewed counts a renewal of a lease that callers work under. err: it had no answer.
func (t *telemetry) renewed(n *nameState, err error) {
	outcome := "renewed"
	if err != nil {
		outcome = "failed"
	}
	t.renewals.Add(context.Background(), 1, t.of(n, attribute.String("wllock.outcome", outcome)))
}

func (t *telemetry) queued(c *call) {
	if c.turn.Queued() {
		c.span.AddEvent("queued", trace.WithTimestamp(c.turnAt.Add(-c.localWait)))
	}
}

func (t *telemetry) waited(ctx context.Context, c *call, tier Tier, d time.Duration, outcome string) {
	if !t.acquire.Enabled(ctx) {
		return
	}
	more := []attribute.KeyValue{attribute.String("wllock.tier", string(tier)), attribute.String("wllock.outcome", outcome)}
	if outcome != "acquired" {
		more = append(more, attribute.String("error.type", outcome))
	}
	t.acquire.Record(ctx, d.Seconds(), t.of(c.name, more...))
}
