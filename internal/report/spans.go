package report

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Spans are those of a call, or of a DoAll, whose keys share them. The span wllock.acquire ends at the grant, so that it is as long
// as the wait, and wllock.hold follows it. Both belong to the caller's span:
//
//	caller ├─ wllock.acquire ─┤
//	                          ├─ wllock.hold ──────────────┤   what the function does belongs to it
type Spans struct {
	acquire trace.Span
	outer   context.Context // the caller's
	batch   bool            // of a caller of a batch guard, whose function's span is that of the batch

	names, keys []string // of a DoAll, those that its caller does not hold already; else nil

	mu    sync.Mutex
	hold  trace.Span // guarded by mu; nil: not begun, or ended
	ended bool       // guarded by mu
}

// InBatch says that the function's span is that of a batch. It comes before anything else is reported.
func (s *Spans) InBatch() {
	if s != nil {
		s.batch = true
	}
}

// begin notes the span of a hold. It reports false if the hold has ended meanwhile.
func (s *Spans) begin(hold trace.Span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.hold = hold
	return true
}

// end returns the span of a hold that ends, once.
func (s *Spans) end() trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := s.hold
	s.hold, s.ended = nil, true
	return hold
}

// start starts a span, unless the tracer stands still. The span is nil if nobody would see what follows.
func (t *telemetry) start(ctx context.Context, by *attempts, w *Wait, open func() (context.Context, trace.Span)) (context.Context, trace.Span) {
	var traced context.Context
	var span trace.Span
	defer w.since(time.Now())
	if !by.try(w.left(), func() { traced, span = open() }, func() { endSpan(span) }) {
		return ctx, nil
	}
	return traced, span
}

func (t *telemetry) open(ctx context.Context, name, key string) (context.Context, trace.Span) {
	return t.openSpan(ctx, attribute.String("wllock.name", name), t.keyOf(key))
}

// openAll is open for the keys of a DoAll.
func (t *telemetry) openAll(ctx context.Context, names, keys []string) (context.Context, trace.Span) {
	return t.openSpan(ctx, attribute.StringSlice("wllock.names", names), t.keysOf(keys),
		attribute.Int("wllock.key.count", len(keys)))
}

// keyOf is the attribute of a key, as it is shown; none unless that is wanted.
func (t *telemetry) keyOf(full string) (key attribute.KeyValue) {
	if t.spanKeys {
		key = attribute.String("wllock.key", t.redaction.Name(full))
	}
	return key
}

// keysOf is keyOf for those of a DoAll.
func (t *telemetry) keysOf(full []string) (keys attribute.KeyValue) {
	if t.spanKeys {
		shown := make([]string, len(full))
		for i, key := range full {
			shown[i] = t.redaction.Name(key)
		}
		keys = attribute.StringSlice("wllock.keys", shown)
	}
	return keys
}

// openSpan opens a span with all attributes, but with the key only if that is wanted.
func (t *telemetry) openSpan(ctx context.Context, name, key attribute.KeyValue, more ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.startSpan(ctx, "wllock.acquire", key, trace.WithAttributes(append(more, t.system, name)...))
}

// openHold opens the span of a call's hold.
func (t *telemetry) openHold(ctx context.Context, c *Call, began time.Time, more ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.openHoldOf(ctx, c.Spans, began, t.keyOf(c.Key), append(more, attribute.String("wllock.name", c.Name.Text))...)
}

// openHoldOf opens the span of a hold, from the grant on: beside that of its acquisition, or below it if the caller has none.
func (t *telemetry) openHoldOf(ctx context.Context, s *Spans, began time.Time, key attribute.KeyValue, more ...attribute.KeyValue) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithAttributes(append(more, t.system)...)}
	if trace.SpanContextFromContext(ctx).IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: s.acquire.SpanContext()}))
	} else {
		ctx = trace.ContextWithSpan(ctx, s.acquire)
	}
	return t.startSpan(ctx, "wllock.hold", key, opts...)
}

func (t *telemetry) startSpan(ctx context.Context, what string, key attribute.KeyValue, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(ctx, what, append(opts, trace.WithSpanKind(trace.SpanKindInternal))...)
	if !span.IsRecording() {
		return ctx, nil
	}
	if t.spanKeys {
		span.SetAttributes(key)
	}
	return ctx, span
}

func endSpan(span trace.Span) {
	if span != nil {
		span.End()
	}
}

// granted are the attributes of what a caller got.
func (c *Call) granted() []attribute.KeyValue {
	return append(c.waits(), attribute.Bool("wllock.handoff", c.Handoff),
		attribute.String("wllock.fence", strconv.FormatUint(c.Fence, 10)), // text: beyond 2^53 many tools round numbers
		attribute.String("wllock.mode", c.Mode.String()))
}

func (c *Call) waits() []attribute.KeyValue { return waits(c.LocalWait, c.DistributedWait) }

func waits(local, distributed time.Duration) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.Float64("wllock.wait.local", local.Seconds()), attribute.Float64("wllock.wait.distributed", distributed.Seconds())}
}

func traceAcquired(r *report) {
	c := r.call
	c.traceQueued()
	s, at := c.Spans, trace.WithTimestamp(c.began())
	if s.keys != nil { // it ends with the last key
		s.acquire.AddEvent("acquired", at, trace.WithAttributes(c.granted()...))
		return
	}
	s.acquire.AddEvent("acquired", at, trace.WithAttributes(attribute.Bool("wllock.handoff", c.Handoff)))
	s.acquire.SetAttributes(c.granted()...)
	s.acquire.End(at)
}

func traceRefused(r *report) {
	c := r.call
	c.traceQueued()
	at, span, reason := tierLocal, c.Spans.acquire, r.why.String()
	if r.atBackend {
		at = tierBackend
	}
	span.SetAttributes(c.waits()...)
	span.SetAttributes(attribute.String("wllock.tier", at.String()), attribute.String("error.type", reason),
		attribute.String("wllock.name", c.Name.Text)) // of a DoAll, the one that was refused
	span.SetStatus(codes.Error, reason)
	span.End(trace.WithTimestamp(r.at))
}

func (c *Call) traceQueued() {
	if c.Queued {
		c.Spans.acquire.AddEvent("queued", trace.WithTimestamp(c.TurnAt.Add(-c.LocalWait)))
	}
}

func traceEnded(r *report) {
	s, span, at := r.call.Spans, r.hold, trace.WithTimestamp(r.at)
	if span == nil && s.batch {
		_, span = r.telemetry.openHold(s.outer, r.call, r.call.began(), r.call.granted()...)
	}
	if span == nil { // of a DoAll that ends before it has all keys; else that span has ended, and nothing is added to it
		span = s.acquire
	}
	if r.degraded {
		span.AddEvent("degraded", at)
	}
	if r.lost {
		span.AddEvent("lost", at)
		span.SetStatus(codes.Error, "lease_lost")
	}
	span.End(at)
}
