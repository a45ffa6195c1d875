package hold

import (
	"context"
	"log/slog"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
)

// report is the call in values, for those who measure. It is put together once, when the caller has the lock: by the caller, or by
// LeaseLost, which may come as soon as the tenure has let the caller in. What it reads does not change by then, so both make the same.
func (h *Hold) report() *report.Call {
	if h.reported.Load() == nil {
		r := h.values()
		h.reported.CompareAndSwap(nil, &r)
	}
	return h.reported.Load()
}

func (h *Hold) values() report.Call {
	return report.Call{
		Name: h.name, Key: h.key, Mode: h.mode, Queued: h.turn.Queued(), Handoff: h.use.Handoff(), Fence: h.use.Fence(), Degraded: h.degraded(),
		TurnAt: h.turnAt, LocalWait: h.localWait, DistributedWait: h.DistributedWait(), Spans: h.spans,
	}
}

// inside starts the span of the hold, and returns the context for its function: ctx, which is the hold's or that of its DoAll,
// with the span in it.
func (h *Hold) inside(ctx context.Context, w *report.Wait) context.Context {
	if h.spans == nil {
		return ctx
	}
	traced, ok := h.group.Observer.Inside(ctx, h.report(), w)
	if !ok {
		return ctx
	}
	return &nested{Context: traced, hold: h}
}

// got reports that the caller has the lock.
func (h *Hold) got() {
	h.name.Got(h.use.Handoff())
	if h.group.Observer.Measures() {
		h.group.Observer.Acquired(h.outside(), h.report())
	}
}

// Refused reports that the caller did not get the lock, after so long at the backend, with the error that it gets.
func (h *Hold) Refused(why report.Outcome, atBackend bool, waited time.Duration, err error) {
	if h.inLine() && atBackend {
		h.name.Left(time.Since(h.turnAt) / time.Duration(max(h.turn.Permits(), 1)))
	}
	h.name.Refused(why)
	if h.group.Observer.Measures() {
		c := h.values()
		c.DistributedWait = waited
		h.group.Observer.Refused(h.outside(), &c, why, atBackend, err)
	}
}

// inLine reports that the caller takes a place in line, and does not enter together with others.
func (h *Hold) inLine() bool { return h.mode == distributed.Exclusive || h.turn.Permits() > 0 }

// degraded reports that the caller works without a lease.
func (h *Hold) degraded() bool { return h.group.Observer.MayDegrade() && h.use.Degraded() }

// ended reports that the functions have returned. lost: the lease had expired by then.
func (h *Hold) ended(now time.Time, lost bool) {
	t := report.Turn{Took: now.Sub(h.turnAt), Callers: max(h.use.Batch(), 1), InLine: h.inLine(), Lost: lost}
	if h.turn.Permits() > 0 {
		t.Took /= time.Duration(h.turn.Beside()) // so many turns pass at a time
	}
	t.Degraded = h.degraded()
	h.name.Ended(t)
	if h.group.Observer.Measures() {
		var loss error
		if lost {
			loss = h.loss()
		}
		h.group.Observer.Ended(h.outside(), h.report(), now, loss, t.Degraded)
	}
}

// warn logs what is wrong with the hold.
func (h *Hold) warn(what string, more ...slog.Attr) {
	h.group.Observer.Warn(h.outside(), what, h.name, h.key, append([]slog.Attr{slog.Uint64("fence", h.use.Fence()),
		slog.Duration("held", time.Since(h.use.Began())), slog.String("mode", h.mode.String())}, more...)...)
}

// Ran has the backend note how the job under the hold has ended.
func (h *Hold) Ran(r distributed.Run) { h.group.Observer.Ran(h.name, r) }

// inquire asks who broke the lock, which is lost.
func (h *Hold) inquire() {
	if q := h.group.Observer.Inquire(h.outside(), report.Loss{Name: h.name, Key: h.key, Fence: h.use.Fence(), Began: h.use.Began()}); q != nil {
		h.inquiry.Store(q)
	}
}
