package report

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// batchBuckets are powers of two, which tell a batch that fills its limit from one that does not.
var batchBuckets metric.Int64HistogramOption = metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

// Batched is called when the leader of a batch has taken its riders along.
func (o *Observer) Batched(n *Name, size int) {
	n.Batches.Add(1)
	n.Figures.Batched.Add(uint64(size - 1))
	t := o.telemetry
	if t == nil || t.batchSize == nil {
		return
	}
	of := n.Figures
	o.metrics.put(report{run: func(*report) {
		t.batchSize.Record(context.Background(), int64(size), t.of(of).name)
	}})
}

// Rode is called when a rider is back from its batch, or has left that.
func (o *Observer) Rode(ctx context.Context, c *Call) {
	o.report(report{ctx: ctx, call: c, at: time.Now()}, traceRode, measureRode)
}

func traceRode(r *report) {
	c := r.call
	c.traceQueued()
	s, at, rider := c.Spans, trace.WithTimestamp(c.TurnAt), attribute.Bool("wllock.rider", true)
	s.acquire.AddEvent("acquired", at, trace.WithAttributes(rider))
	s.acquire.SetAttributes(append(waits(c.LocalWait, 0), rider)...)
	s.acquire.End(at)
	if _, hold := r.telemetry.openHold(s.outer, c, c.TurnAt, rider); hold != nil {
		hold.End(trace.WithTimestamp(r.at))
	}
}

func measureRode(r *report) {
	r.telemetry.waited(r.ctx, r.call, tierLocal, "acquired")
}

// BeganBatch starts the span of a batch, a root that is linked to the span of each caller that has one, and returns the function's context
// with it. As for a hold, it is waited for with the lock held, because what the function does belongs to the span. The wait is within
// what is left of the leader's patience, and there is none while tracers stand still (rule T10). The caller has asked Traces.
func (o *Observer) BeganBatch(ctx context.Context, n *Name, key string, callers []*Spans, w *Wait) (context.Context, trace.Span) {
	t := o.telemetry
	return t.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		return t.startSpan(ctx, "wllock.batch", t.keyOf(key), trace.WithNewRoot(), trace.WithLinks(linksOf(callers)...),
			trace.WithAttributes(t.system, attribute.String("wllock.name", n.Text), attribute.Int("wllock.batch.size", len(callers))))
	})
}

// linksOf asks spans, which are foreign code.
func linksOf(callers []*Spans) (links []trace.Link) {
	for _, s := range callers {
		if s != nil {
			links = append(links, trace.Link{SpanContext: s.acquire.SpanContext()})
		}
	}
	return links
}

// EndedBatch is called when the function has returned and the lock has been released.
func (o *Observer) EndedBatch(span trace.Span, failed bool) {
	if span == nil {
		return
	}
	at := time.Now()
	o.spans.put(report{run: func(*report) {
		if failed {
			span.SetStatus(codes.Error, "batch_failed")
		}
		span.End(trace.WithTimestamp(at))
	}})
}
