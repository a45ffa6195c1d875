package wllock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/local"
)

// batchBuckets are powers of two, which tell a batch that fills its limit from one that does not.
var batchBuckets metric.Int64HistogramOption = metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

// batched is called when the leader of a batch has taken its riders along.
func (o *observer) batched(c *call, size int) {
	c.name.batches.Add(1)
	c.name.batched.Add(uint64(size - 1))
	t := o.telemetry
	if t == nil || t.batchSize == nil {
		return
	}
	name := c.name.tally
	o.metrics.put(report{run: func(*report) {
		t.batchSize.Record(context.Background(), int64(size), t.of(name).name)
	}})
}

// rode is called when a rider is back from its batch, or has left that.
func (o *observer) rode(ctx context.Context, c *call) {
	if o.telemetry != nil {
		o.report(report{ctx: ctx, call: c, at: time.Now()}, traceRode, measureRode)
	}
}

func traceRode(r *report) {
	traceQueued(r.call)
	s, at, rider := r.call.spans, trace.WithTimestamp(r.call.turnAt), attribute.Bool("wllock.rider", true)
	s.acquire.AddEvent("acquired", at, trace.WithAttributes(rider))
	s.acquire.SetAttributes(append(waits(r.call.localWait, 0), rider)...)
	s.acquire.End(at)
	if _, hold := r.telemetry.openHold(s.outer, r.call, r.call.turnAt, rider); hold != nil {
		hold.End(trace.WithTimestamp(r.at))
	}
}

func measureRode(r *report) {
	r.telemetry.waited(r.ctx, r.call, TierLocal, r.call.localWait, "acquired")
}

// beganBatch starts the span of a batch, a root that is linked to the span of each caller, and returns the function's context
// with it. As for a hold, it is waited for with the lock held, because what the function does belongs to the span: within what is
// left of the leader's patience, and not at all while tracers stand still (rule T10).
func (o *observer) beganBatch(h *hold, leader *batchCaller, size int) (context.Context, trace.Span) {
	t := o.telemetry
	if t == nil || t.tracer == nil {
		return h, nil
	}
	return t.start(h, &o.starts, &h.foreign, func() (context.Context, trace.Span) {
		return t.startSpan(h, "wllock.batch", t.keyOf(h.key), trace.WithNewRoot(),
			trace.WithLinks(linksOf(&leader.Member)...), trace.WithAttributes(t.system,
				attribute.String("wllock.name", h.name.name), attribute.Int("wllock.batch.size", size)))
	})
}

// linksOf returns a link to the span of each caller that has one.
func linksOf(leader *local.Member) (links []trace.Link) {
	for m := range leader.Batch() {
		if s := m.Owner.(batchWork).caller().hold.spans; s != nil {
			links = append(links, trace.Link{SpanContext: s.acquire.SpanContext()})
		}
	}
	return links
}

// endedBatch is called when the function has returned and the lock has been released.
func (o *observer) endedBatch(span trace.Span, failed bool) {
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
