package wllock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
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
	redaction               *redaction // of keys
	acquire, hold           metric.Float64Histogram
	sheds, handoffs, losses metric.Int64Counter
	renewals, degradations  metric.Int64Counter
	batchSize               metric.Int64Histogram
	registration            metric.Registration // nil: no metrics
}

// newTelemetry returns nil if no provider was given.
func newTelemetry(n *names, o *observer) (*telemetry, error) {
	s := n.settings
	if s.tracers == nil && s.meters == nil {
		return nil, nil
	}
	t := &telemetry{system: attribute.String("wllock.system", n.system), spanKeys: s.spanKeys, redaction: o.redaction}
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
	t.batchSize = instrument(&err, m.Int64Histogram, "wllock.batch.size", "{caller}", "Callers served by one run of a batch function", batchBuckets)
	if err != nil {
		return t, err
	}
	return t, t.observe(m, n, o)
}

// observe registers what the provider asks for by itself.
func (t *telemetry) observe(m metric.Meter, n *names, from *observer) (err error) {
	waiting := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.waiter.count", "{waiter}", "Callers waiting in a local queue")
	held := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.lock.count", "{lock}", "Locks held")
	limit := instrument(&err, m.Int64ObservableGauge, "wllock.waiter.limit", "{waiter}", "Callers that may wait per key; -1: any number")
	available := instrument(&err, m.Int64ObservableGauge, "wllock.backend.available", "{locker}",
		"1 while locks can be acquired at the backend; 0 while it is away or refuses")
	local := instrument(&err, m.Int64ObservableGauge, "wllock.degraded", "{locker}",
		"1 while locks are held within the process only, because the backend is unreachable")
	if err != nil {
		return err
	}
	t.registration, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		from.collected(ctx)
		for state, figures := range n.all() {
			of := t.of(figures).name
			o.ObserveInt64(waiting, figures.waiting.Load(), of)
			o.ObserveInt64(held, figures.held.Load(), of)
			if state != nil {
				o.ObserveInt64(limit, int64(state.threshold(&state.options)), of)
			}
		}
		of := metric.WithAttributes(t.system)
		if from.backend.Status().Available {
			o.ObserveInt64(available, 1, of)
		} else {
			o.ObserveInt64(available, 0, of)
		}
		switch {
		case from.degraded == nil:
		case from.degraded():
			o.ObserveInt64(local, 1, of)
		default:
			o.ObserveInt64(local, 0, of)
		}
		return nil
	}, waiting, held, limit, available, local)
	return err
}

// instrument makes an instrument and collects the error. Option is the kind's own type of option; unit and description
// are options of every kind.
func instrument[Instrument, Option any](errs *error, create func(string, ...Option) (Instrument, error),
	name, unit, doc string, more ...Option) Instrument {
	options := append(more, any(metric.WithUnit(unit)).(Option), any(metric.WithDescription(doc)).(Option))
	i, err := create(name, options...)
	*errs = join(*errs, err)
	return i
}

// attributes are those of a name, made once, because to make them costs more than to measure.
type attributes struct {
	name  metric.MeasurementOption
	tiers map[Tier]metric.MeasurementOption // of waits that ended well
}

// of returns the attributes of a name.
func (t *telemetry) of(n *tally) *attributes {
	if a := n.attrs.Load(); a != nil {
		return a
	}
	a := &attributes{name: t.with(n), tiers: map[Tier]metric.MeasurementOption{}}
	for _, tier := range []Tier{TierLocal, TierDistributed} {
		a.tiers[tier] = t.with(n, attribute.String("wllock.tier", string(tier)), attribute.String("wllock.outcome", "acquired"))
	}
	n.attrs.Store(a)
	return a
}

func (t *telemetry) with(n *tally, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, t.system, attribute.String("wllock.name", n.label))...))
}

// count adds one if anybody counts.
func (t *telemetry) count(ctx context.Context, c metric.Int64Counter, n *nameState) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, t.of(n.tally).name)
	}
}

func measureAcquired(r *report) {
	ctx := r.context()
	t, c := r.telemetry, r.call
	t.waited(ctx, c, TierLocal, c.localWait, "acquired")
	t.waited(ctx, c, TierDistributed, c.distributedWait(), "acquired")
	if c.use.Handoff() {
		t.count(ctx, t.handoffs, c.name)
	}
}

func measureRefused(r *report) {
	ctx := r.context()
	t, c, e, reason := r.telemetry, r.call, r.err, r.why.String()
	if e.Tier == TierLocal {
		t.waited(ctx, c, TierLocal, e.LocalWait, reason)
	} else {
		t.waited(ctx, c, TierLocal, e.LocalWait, "acquired") // it had got its turn
		t.waited(ctx, c, TierDistributed, e.DistributedWait, reason)
	}
	if r.why == queueFull {
		t.count(ctx, t.sheds, c.name)
	}
}

func measureEnded(r *report) {
	ctx := r.context()
	t, c := r.telemetry, r.call
	if t.hold.Enabled(ctx) {
		t.hold.Record(ctx, r.at.Sub(c.use.Began()).Seconds(), t.of(c.name.tally).name)
	}
	if r.lost {
		t.count(ctx, t.losses, c.name)
	}
	if r.degraded {
		t.count(ctx, t.degradations, c.name)
	}
}

// renewed counts a renewal of a lease that callers work under. err: it had no answer.
func (t *telemetry) renewed(n *nameState, err error) {
	outcome := "renewed"
	if err != nil {
		outcome = "failed"
	}
	t.renewals.Add(context.Background(), 1, t.with(n.tally, attribute.String("wllock.outcome", outcome)))
}

// context is what a measurement is an example in: its span is the one of the acquisition if there is one.
func (r *report) context() context.Context {
	if s := r.call.spans; s != nil {
		return trace.ContextWithSpan(r.ctx, s.acquire)
	}
	return r.ctx
}

func (t *telemetry) waited(ctx context.Context, c *call, tier Tier, d time.Duration, outcome string) {
	if !t.acquire.Enabled(ctx) {
		return
	}
	of := t.of(c.name.tally).tiers[tier]
	if outcome != "acquired" {
		of = t.with(c.name.tally, attribute.String("wllock.tier", string(tier)), attribute.String("wllock.outcome", outcome),
			attribute.String("error.type", outcome))
	}
	t.acquire.Record(ctx, d.Seconds(), of)
}
