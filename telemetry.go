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

// bucketAdvice are the boundaries, in seconds, at which times are told apart: from a hand-over within the process to
// the longest waits.
var bucketAdvice = []float64{.00001, .0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// telemetry is what a Locker reports to OpenTelemetry. A nil telemetry reports nothing and costs nothing. The key is in
// no attribute of a metric: there are too many of them.
type telemetry struct {
	system                  attribute.KeyValue
	tracer                  trace.Tracer // nil: no spans
	spanKeys                bool
	acquire, hold           metric.Float64Histogram
	sheds, handoffs, losses metric.Int64Counter
	renewals, degradations  metric.Int64Counter
	observed                metric.Registration // nil: no metrics
}

// newTelemetry returns nil if no provider was given.
func newTelemetry(l *Locker) (*telemetry, error) {
	s := &l.settings
	if s.tracers == nil && s.meters == nil {
		return nil, nil
	}
	t := &telemetry{system: attribute.String("wllock.system", l.system), spanKeys: s.spanKeys}
	if s.tracers != nil {
		t.tracer = s.tracers.Tracer(scope)
	}
	if s.meters == nil {
		return t, nil
	}
	return t, t.instruments(l, s.meters.Meter(scope))
}

func (t *telemetry) instruments(l *Locker, m metric.Meter) error {
	var errs [11]error
	buckets := metric.WithExplicitBucketBoundaries(bucketAdvice...)
	t.acquire, errs[0] = m.Float64Histogram("wllock.acquire.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Time spent waiting for a lock, by tier and outcome"))
	t.hold, errs[1] = m.Float64Histogram("wllock.hold.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Time a lock was held"))
	t.sheds, errs[2] = m.Int64Counter("wllock.sheds", metric.WithUnit("{request}"),
		metric.WithDescription("Requests refused because the local queue was full"))
	t.handoffs, errs[3] = m.Int64Counter("wllock.handoffs", metric.WithUnit("{handoff}"),
		metric.WithDescription("Locks served from a running tenure"))
	t.losses, errs[4] = m.Int64Counter("wllock.losses", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks lost while held"))
	t.renewals, errs[8] = m.Int64Counter("wllock.renewals", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals of leases, by outcome"))
	t.degradations, errs[9] = m.Int64Counter("wllock.degradations", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks held without a lease at their end, because the backend was away"))
	degraded, err10 := m.Int64ObservableGauge("wllock.degraded", metric.WithUnit("{locker}"),
		metric.WithDescription("1 while locks are had within the process only, because the backend is away"))
	waiting, err5 := m.Int64ObservableUpDownCounter("wllock.waiter.count", metric.WithUnit("{waiter}"),
		metric.WithDescription("Callers that wait in a local queue"))
	held, err6 := m.Int64ObservableUpDownCounter("wllock.lock.count", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks held"))
	limit, err7 := m.Int64ObservableGauge("wllock.waiter.limit", metric.WithUnit("{waiter}"),
		metric.WithDescription("Callers that may wait per key; -1: any number"))
	errs[5], errs[6], errs[7], errs[10] = err5, err6, err7, err10
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	observed, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, n := range l.names.all() {
			o.ObserveInt64(waiting, n.waiting.Load(), t.of(n))
			o.ObserveInt64(held, n.held.Load(), t.of(n))
			o.ObserveInt64(limit, int64(l.threshold(n, &n.options)), t.of(n))
		}
		if l.outage != nil {
			o.ObserveInt64(degraded, one(l.outage.Degraded()), metric.WithAttributes(t.system))
		}
		return nil
	}, waiting, held, limit, degraded)
	t.observed = observed
	return err
}

// close ends what the providers ask by themselves: they live longer than the Locker, and would keep it.
func (t *telemetry) close() error {
	if t == nil || t.observed == nil {
		return nil
	}
	return t.observed.Unregister()
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// renewed counts a renewal of a lease that callers here work under. err: it had no answer.
func (l *Locker) renewed(tag any, err error) {
	outcome := "renewed"
	if err != nil {
		outcome = "failed"
	}
	l.watch.renewals.Add(context.Background(), 1, l.watch.of(tag.(*nameState), attribute.String("wllock.outcome", outcome)))
}

// of are the attributes of a name.
func (t *telemetry) of(n *nameState, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, t.system, attribute.String("wllock.name", n.name))...)
}

// begin starts the span of an acquisition; it ends with the hold, or with the refusal. This and the three that follow are
// small enough to be inlined, so that nobody who does not measure makes a call.
func (t *telemetry) begin(ctx context.Context, h *hold) context.Context {
	if t == nil || t.tracer == nil {
		return ctx
	}
	return t.start(ctx, h)
}

// acquired notes that the caller is in.
func (t *telemetry) acquired(ctx context.Context, h *hold) {
	if t != nil {
		t.noteAcquired(ctx, h)
	}
}

// refused ends what begin began.
func (t *telemetry) refused(ctx context.Context, h *hold, e *Error) {
	if t != nil {
		t.noteRefused(ctx, h, e)
	}
}

// ended is the end of a hold.
func (t *telemetry) ended(h *hold, now time.Time, lost, degraded bool) {
	if t != nil {
		t.noteEnded(h, now, lost, degraded)
	}
}

func (t *telemetry) start(ctx context.Context, h *hold) context.Context {
	ctx, span := t.tracer.Start(ctx, "wllock.acquire", trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(t.system, attribute.String("wllock.name", h.name.name)))
	if !span.IsRecording() { // nobody would see what comes
		return ctx
	}
	h.span = span
	if t.spanKeys {
		h.span.SetAttributes(attribute.String("wllock.key", h.key))
	}
	return ctx
}

func (t *telemetry) noteAcquired(ctx context.Context, h *hold) {
	if h.span != nil {
		t.noteQueued(h)
		h.span.AddEvent("acquired", trace.WithAttributes(attribute.Bool("wllock.handoff", h.use.Handoff())))
	}
	if t.acquire == nil {
		return
	}
	t.waited(ctx, h, TierLocal, h.localWait, "acquired")
	t.waited(ctx, h, TierDistributed, h.distributedWait(), "acquired")
	if h.use.Handoff() {
		t.count(ctx, t.handoffs, h.name)
	}
}

// lost counts a lock whose loss was found out when it was given back.
func (t *telemetry) lost(n *nameState) {
	if t != nil && t.losses != nil {
		t.count(context.Background(), t.losses, n)
	}
}

func (t *telemetry) noteQueued(h *hold) {
	if h.turn.Queued() {
		h.span.AddEvent("queued", trace.WithTimestamp(h.turnAt.Add(-h.localWait)))
	}
}

func (t *telemetry) noteRefused(ctx context.Context, h *hold, e *Error) {
	reason := outcome(e.Err)
	if h.span != nil {
		t.noteQueued(h)
		h.span.SetAttributes(attribute.String("wllock.tier", string(e.Tier)), attribute.String("error.type", reason))
		h.span.SetStatus(codes.Error, reason)
		h.span.End()
	}
	if t.acquire == nil {
		return
	}
	if e.Tier == TierLocal {
		t.waited(ctx, h, TierLocal, e.LocalWait, reason)
	} else {
		t.waited(ctx, h, TierLocal, e.LocalWait, "acquired") // the turn was had
		t.waited(ctx, h, TierDistributed, e.DistributedWait, reason)
	}
	if reason == "queue_full" {
		t.count(ctx, t.sheds, h.name)
	}
}

func (t *telemetry) noteEnded(h *hold, now time.Time, lost, degraded bool) {
	if h.span != nil {
		if degraded {
			h.span.AddEvent("degraded")
		}
		if lost {
			h.span.AddEvent("lost")
			h.span.SetStatus(codes.Error, "lease_lost")
		}
		h.span.End()
	}
	if t.hold == nil {
		return
	}
	if t.hold.Enabled(h.parent) {
		t.hold.Record(h.parent, now.Sub(h.use.Began()).Seconds(), t.of(h.name))
	}
	if lost {
		t.count(h.parent, t.losses, h.name)
	}
	if degraded {
		t.count(h.parent, t.degradations, h.name)
	}
}

// count adds one, if anybody counts: the attributes are most of what that costs.
func (t *telemetry) count(ctx context.Context, c metric.Int64Counter, n *nameState) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, t.of(n))
	}
}

func (t *telemetry) waited(ctx context.Context, h *hold, tier Tier, d time.Duration, outcome string) {
	if !t.acquire.Enabled(ctx) {
		return
	}
	more := []attribute.KeyValue{attribute.String("wllock.tier", string(tier)), attribute.String("wllock.outcome", outcome)}
	if outcome != "acquired" {
		more = append(more, attribute.String("error.type", outcome))
	}
	t.acquire.Record(ctx, d.Seconds(), t.of(h.name, more...))
}

// outcome is the error as a word for attributes: a fixed few, so that they stay countable.
func outcome(err error) string {
	for _, o := range []struct {
		err  error
		word string
	}{
		{ErrQueueFull, "queue_full"}, {ErrUnavailable, "unavailable"}, {ErrWaitTimeout, "wait_timeout"}, {ErrHeld, "held"},
		{ErrClosed, "closed"}, {ErrLeaseLost, "lease_lost"}, {context.DeadlineExceeded, "deadline_exceeded"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	return "other"
}
