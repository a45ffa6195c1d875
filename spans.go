package wllock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// spans are those of a call, or of a DoAll, whose keys share them. The span wllock.acquire ends at the grant, so that it is as long
// as the wait, and wllock.hold follows it; both belong to the caller's span:
//
//	caller ├─ wllock.acquire ─┤
//	                          ├─ wllock.hold ──────────────┤   what the function does belongs to it
type spans struct {
	acquire trace.Span
	outer   context.Context // the caller's
	several bool            // of a DoAll
	batch   bool            // of a caller of a batch guard, whose function's span is that of the batch

	mu    sync.Mutex
	hold  trace.Span // guarded by mu; nil: not begun, or ended
	ended bool       // guarded by mu
}

// begin notes the span of a hold. It reports false if the hold has ended meanwhile.
func (s *spans) begin(hold trace.Span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.hold = hold
	return true
}

// end returns the span of a hold that ends, once.
func (s *spans) end() trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := s.hold
	s.hold, s.ended = nil, true
	return hold
}

// start starts a span, unless the tracer stands still. The span is nil if nobody would see what follows.
func (t *telemetry) start(ctx context.Context, by *attempts, w *foreignWait, open func() (context.Context, trace.Span)) (context.Context, trace.Span) {
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
		key = attribute.String("wllock.key", t.redaction.name(full))
	}
	return key
}

// keysOf is keyOf for those of a DoAll.
func (t *telemetry) keysOf(full []string) (keys attribute.KeyValue) {
	if t.spanKeys {
		shown := make([]string, len(full))
		for i, key := range full {
			shown[i] = t.redaction.name(key)
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
func (t *telemetry) openHold(ctx context.Context, c *call, began time.Time, more ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.openHoldOf(ctx, c.spans, began, t.keyOf(c.key), append(more, attribute.String("wllock.name", c.name.name))...)
}

// openHoldOf opens the span of a hold, from the grant on: beside that of its acquisition, or below it if the caller has none.
func (t *telemetry) openHoldOf(ctx context.Context, s *spans, began time.Time, key attribute.KeyValue, more ...attribute.KeyValue) (context.Context, trace.Span) {
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

// inside starts the span of a hold that has just begun, and returns the context for its function, with that span in it. ctx is the
// hold's, h, or that of its DoAll, whose last key h is. Like that of a batch it is waited for with the lock held, because what the function does belongs to
// it: within what is left of the caller's patience, and only if its first span came in time (rule T10).
func (o *observer) inside(ctx context.Context, h *hold, w *foreignWait) context.Context {
	s, t := h.spans, o.telemetry
	if s == nil {
		return ctx
	}
	traced, span := t.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		if s.several {
			names, keys := asked(h.together.members)
			return t.openHoldOf(ctx, s, h.use.Began(), t.keysOf(keys),
				attribute.StringSlice("wllock.names", names), attribute.Int("wllock.key.count", len(keys)))
		}
		return t.openHold(ctx, &h.call, h.use.Began(), h.granted()...)
	})
	switch {
	case span == nil:
		return ctx
	case !s.begin(span): // the lock is lost already
		o.spans.put(report{run: traceEnded, call: &h.call, hold: span, at: time.Now(), lost: true})
	}
	return &nested{Context: traced, hold: h}
}

// granted are the attributes of what a caller got.
func (c *call) granted() []attribute.KeyValue {
	return append(waits(c.localWait, c.distributedWait()), attribute.Bool("wllock.handoff", c.use.Handoff()),
		attribute.String("wllock.fence", strconv.FormatUint(c.use.Fence(), 10)), // text: beyond 2^53 many tools round numbers
		attribute.String("wllock.mode", c.mode.String()))
}

func waits(local, distributed time.Duration) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.Float64("wllock.wait.local", local.Seconds()), attribute.Float64("wllock.wait.distributed", distributed.Seconds())}
}

func traceAcquired(r *report) {
	traceQueued(r.call)
	s, at := r.call.spans, trace.WithTimestamp(r.call.use.Began())
	if s.several { // it ends with the last key
		s.acquire.AddEvent("acquired", at, trace.WithAttributes(r.call.granted()...))
		return
	}
	s.acquire.AddEvent("acquired", at, trace.WithAttributes(attribute.Bool("wllock.handoff", r.call.use.Handoff())))
	s.acquire.SetAttributes(r.call.granted()...)
	s.acquire.End(at)
}

// gotAll is called when a DoAll, whose last key is h, has acquired all of its keys.
func (o *observer) gotAll(b *bundle, h *hold) {
	if h.spans == nil {
		return
	}
	local, distributed := b.localWait, b.distributedWait
	o.spans.put(report{call: &h.call, run: func(r *report) {
		span := r.call.spans.acquire
		span.SetAttributes(waits(local, distributed)...)
		span.End(trace.WithTimestamp(r.call.use.Began()))
	}})
}

func traceRefused(r *report) {
	traceQueued(r.call)
	span, reason := r.call.spans.acquire, r.why.String()
	span.SetAttributes(waits(r.err.LocalWait, r.err.DistributedWait)...)
	span.SetAttributes(attribute.String("wllock.tier", string(r.err.Tier)), attribute.String("error.type", reason),
		attribute.String("wllock.name", r.call.name.name)) // of a DoAll, the one that was refused
	span.SetStatus(codes.Error, reason)
	span.End(trace.WithTimestamp(r.at))
}

func traceQueued(c *call) {
	if c.turn.Queued() {
		c.spans.acquire.AddEvent("queued", trace.WithTimestamp(c.turnAt.Add(-c.localWait)))
	}
}

func traceEnded(r *report) {
	s, span, at := r.call.spans, r.hold, trace.WithTimestamp(r.at)
	if span == nil && s.batch {
		_, span = r.telemetry.openHold(s.outer, r.call, r.call.use.Began(), r.call.granted()...)
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
