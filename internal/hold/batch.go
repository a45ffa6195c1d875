package hold

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/local"
)

// Join makes the caller one that may lead a batch, or ride in one. It comes between Trace and Queue.
func (h *Hold) Join(m *local.Member) {
	h.turn.Join(m)
	h.spans.InBatch()
}

// Lead makes the caller, which has the lock, the leader of a batch: see local.Turn.Take. It returns the number of callers.
func (h *Hold) Lead(max int, told chan struct{}) (size int) {
	size = h.turn.Take(max, told, time.Now())
	h.tenure.Lead(&h.use, size)
	h.group.Observer.Batched(h.name, size)
	return size
}

// Rides tells a rider from a leader, which has had the turn.
func (h *Hold) Rides() bool { return h.tenure == nil }

// Rode reports a rider: it waited until it was taken along.
func (h *Hold) Rode(ctx context.Context, taken time.Time) {
	h.localWait -= h.turnAt.Sub(taken)
	h.turnAt = taken
	if h.group.Observer.Measures() {
		h.group.Observer.Rode(ctx, h.report())
		h.group.Observer.Left(&h.foreign)
	}
}

// Spans are those of the caller, nil if it is not traced.
func (h *Hold) Spans() *report.Spans { return h.spans }

// TraceBatch starts the span of the batch of these callers, which h leads, and returns the context for the function. There is a tracer.
func (h *Hold) TraceBatch(callers []*report.Spans) (context.Context, trace.Span) {
	return h.group.Observer.BeganBatch(h, h.name, h.key, callers, &h.foreign)
}
