package report

import (
	"context"
	"slices"
	"sync"

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
	redaction               *Redaction // of keys
	acquire, hold           metric.Float64Histogram
	sheds, handoffs, losses metric.Int64Counter
	renewals, degradations  metric.Int64Counter
	batchSize               metric.Int64Histogram
	registration            metric.Registration // nil: no metrics
	number                  int                 // of the Locker, among those of its system: see lockerNumbers
}

// newTelemetry returns nil if no provider was given.
func newTelemetry(c *Config, o *Observer, of State) (*telemetry, error) {
	if c.Tracers == nil && c.Meters == nil {
		return nil, nil
	}
	t := &telemetry{system: attribute.String("wllock.system", c.System), spanKeys: c.SpanKeys, redaction: o.Redaction}
	if c.Tracers != nil {
		t.tracer = c.Tracers.Tracer(scope)
	}
	if c.Meters == nil {
		return t, nil
	}
	m := c.Meters.Meter(scope)
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
	return t, t.observe(m, o, of)
}

// observe registers what the provider asks for by itself.
func (t *telemetry) observe(m metric.Meter, from *Observer, state State) (err error) {
	waiting := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.waiter.count", "{waiter}", "Callers waiting in a local queue")
	held := instrument(&err, m.Int64ObservableUpDownCounter, "wllock.lock.count", "{lock}", "Locks held")
	limit := instrument(&err, m.Int64ObservableGauge, "wllock.waiter.limit", "{waiter}", "Callers that may wait per key; -1: any number")
	available := instrument(&err, m.Int64ObservableGauge, "wllock.backend.available", "{locker}",
		"1 while locks can be acquired at the backend; 0 while it is away or refuses")
	within := instrument(&err, m.Int64ObservableGauge, "wllock.degraded", "{locker}",
		"1 while locks are held within the process only, because the backend is unreachable")
	if err != nil {
		return err
	}
	t.number = lockerNumbers.take(from.System)
	var further []attribute.KeyValue
	if t.number > 1 {
		further = append(further, attribute.Int("wllock.locker", t.number))
	}
	number, of := metric.WithAttributes(further...), metric.WithAttributes(append(further, t.system)...)
	t.registration, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		from.collected(ctx)
		for figures, threshold := range state.Names {
			name := t.of(figures).name
			o.ObserveInt64(waiting, figures.Waiting.Load(), name)
			o.ObserveInt64(held, figures.Held.Load(), name)
			if figures.Label != Others {
				o.ObserveInt64(limit, int64(threshold), name, number)
			}
		}
		if state.Available() {
			o.ObserveInt64(available, 1, of)
		} else {
			o.ObserveInt64(available, 0, of)
		}
		switch {
		case state.Degraded == nil:
		case state.Degraded():
			o.ObserveInt64(within, 1, of)
		default:
			o.ObserveInt64(within, 0, of)
		}
		return nil
	}, waiting, held, limit, available, within)
	return err
}

// lockerNumbers are those of the Lockers that are measured, so that gauges of one process do not overwrite each other: the first of a system has
// number 1, and needs no attribute. A number that is given back is the next one's.
var lockerNumbers = numbering{used: map[string][]bool{}}

type numbering struct {
	mu   sync.Mutex
	used map[string][]bool // guarded by mu; by system
}

func (n *numbering) take(system string) (number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	free := slices.Index(n.used[system], false)
	if free < 0 {
		free = len(n.used[system])
		n.used[system] = append(n.used[system], false)
	}
	n.used[system][free] = true
	return free + 1
}

func (n *numbering) giveBack(system string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[system][number-1] = false
}

// instrument makes an instrument and collects the error. Option is the kind's own type of option; unit and description
// are options of every kind.
func instrument[Instrument, Option any](errs *error, create func(string, ...Option) (Instrument, error),
	name, unit, doc string, more ...Option) Instrument {
	options := append(more, any(metric.WithUnit(unit)).(Option), any(metric.WithDescription(doc)).(Option))
	i, err := create(name, options...)
	*errs = Join(*errs, err)
	return i
}

// attributes are those of a name, made once, because to make them costs more than to measure.
type attributes struct {
	name  metric.MeasurementOption
	tiers [2]metric.MeasurementOption // of waits that ended well
	begun bool                        // the counters of the name exist. Of the goroutine that measures
}

// tier is one of the two in which a caller waits.
type tier uint8

const (
	tierLocal tier = iota
	tierBackend
)

func (t tier) String() string { return [...]string{"local", "distributed"}[t] }

// of returns the attributes of a name.
func (t *telemetry) of(f *Figures) *attributes {
	if a := f.attrs.Load(); a != nil {
		return a
	}
	a := &attributes{name: t.with(f)}
	for _, tier := range []tier{tierLocal, tierBackend} {
		a.tiers[tier] = t.with(f, attribute.String("wllock.tier", tier.String()), attribute.String("wllock.outcome", "acquired"))
	}
	f.attrs.Store(a)
	return a
}

func (t *telemetry) with(f *Figures, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, t.system, attribute.String("wllock.name", f.Label))...))
}

// begin has the counters of a name exist from its first use on: Prometheus sees no increase in a counter that appears with its first loss.
func (t *telemetry) begin(ctx context.Context, f *Figures) {
	a := t.of(f)
	if a.begun {
		return
	}
	a.begun = true
	zero := func(c metric.Int64Counter, of metric.MeasurementOption) {
		if c.Enabled(ctx) {
			c.Add(ctx, 0, of)
		}
	}
	for _, c := range []metric.Int64Counter{t.sheds, t.handoffs, t.losses, t.degradations} {
		zero(c, a.name)
	}
	for _, outcome := range []string{renewalAnswered, renewalFailed} {
		zero(t.renewals, t.with(f, attribute.String("wllock.outcome", outcome)))
	}
}

const renewalAnswered, renewalFailed = "renewed", "failed"

// count adds one if anybody counts.
func (t *telemetry) count(ctx context.Context, c metric.Int64Counter, f *Figures) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, t.of(f).name)
	}
}

func measureAcquired(r *report) {
	ctx := r.context()
	t, c := r.telemetry, r.call
	t.waited(ctx, c, tierLocal, "acquired")
	t.waited(ctx, c, tierBackend, "acquired")
	if c.Handoff {
		t.count(ctx, t.handoffs, c.Name.Figures)
	}
}

func measureRefused(r *report) {
	ctx := r.context()
	t, c, reason := r.telemetry, r.call, r.why.String()
	if r.atBackend {
		t.waited(ctx, c, tierLocal, "acquired") // it had got its turn
		t.waited(ctx, c, tierBackend, reason)
	} else {
		t.waited(ctx, c, tierLocal, reason)
	}
	if r.why == QueueFull {
		t.count(ctx, t.sheds, c.Name.Figures)
	}
}

func measureEnded(r *report) {
	ctx := r.context()
	t, c := r.telemetry, r.call
	if t.hold.Enabled(ctx) {
		t.hold.Record(ctx, r.at.Sub(c.began()).Seconds(), t.of(c.Name.Figures).name)
	}
	if r.lost {
		t.count(ctx, t.losses, c.Name.Figures)
	}
	if r.degraded {
		t.count(ctx, t.degradations, c.Name.Figures)
	}
}

// renewed counts a renewal of a lease that callers work under. err: it had no answer.
func (t *telemetry) renewed(f *Figures, err error) {
	outcome := renewalAnswered
	if err != nil {
		outcome = renewalFailed
	}
	t.renewals.Add(context.Background(), 1, t.with(f, attribute.String("wllock.outcome", outcome)))
}

// context is what a measurement is an example in: its span is the one of the acquisition if there is one.
func (r *report) context() context.Context {
	if s := r.call.Spans; s != nil {
		return trace.ContextWithSpan(r.ctx, s.acquire)
	}
	return r.ctx
}

func (t *telemetry) waited(ctx context.Context, c *Call, in tier, outcome string) {
	t.begin(ctx, c.Name.Figures)
	if !t.acquire.Enabled(ctx) {
		return
	}
	d := c.LocalWait
	if in == tierBackend {
		d = c.DistributedWait
	}
	of := t.of(c.Name.Figures).tiers[in]
	if outcome != "acquired" {
		of = t.with(c.Name.Figures, attribute.String("wllock.tier", in.String()), attribute.String("wllock.outcome", outcome),
			attribute.String("error.type", outcome))
	}
	t.acquire.Record(ctx, d.Seconds(), of)
}
