package wllock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// call is what is reported about one caller: which lock it asked for, how long it waited, and what it got. It is a part
// of the caller's hold.
type call struct {
	name    *nameState
	key     string // full name
	mode    distributed.Mode
	foreign report.Wait // in the room that mode leaves, as is the next

	overstayed atomic.Bool // LockTimeMax has passed

	turn      local.Turn[*tenure.Tenure]
	turnAt    time.Time // when the caller got its turn, or, while it waits for one, when it asked
	localWait time.Duration
	use       tenure.Use
	spans     *report.Spans // nil: not traced

	reported atomic.Pointer[report.Call] // nil: nobody measures, or nothing has been reported yet
}

func (c *call) distributedWait() time.Duration { return c.use.Began().Sub(c.turnAt) }

// report is the call in values, which are put together for those who measure, once they stand fast. They are the same for whoever comes
// first: its caller, or LeaseLost in the moment when that is let in.
func (c *call) report() *report.Call {
	if c.reported.Load() == nil {
		r := c.values()
		c.reported.CompareAndSwap(nil, &r)
	}
	return c.reported.Load()
}

func (c *call) values() report.Call {
	return report.Call{
		Name: &c.name.Name, Key: c.key, Mode: c.mode, Queued: c.turn.Queued(), Handoff: c.use.Handoff(), Fence: c.use.Fence(),
		TurnAt: c.turnAt, LocalWait: c.localWait, DistributedWait: c.distributedWait(), Spans: c.spans,
	}
}

// began starts the span of the acquisition, before the caller waits.
func (h *hold) began(ctx context.Context) (traced context.Context) {
	traced, h.spans = h.observer.Began(ctx, &h.name.Name, h.key, &h.foreign)
	return traced
}

// inside starts the span of the hold, and returns the context for its function: ctx, which is the hold's or that of its DoAll,
// with the span in it.
func (h *hold) inside(ctx context.Context, w *report.Wait) context.Context {
	if h.spans == nil {
		return ctx
	}
	traced, ok := h.observer.Inside(ctx, h.report(), w)
	if !ok {
		return ctx
	}
	return &nested{Context: traced, hold: h}
}

// gotIt reports that the caller has the lock.
func (h *hold) gotIt() {
	h.name.Got(h.use.Handoff())
	if h.observer.Measures() {
		h.observer.Acquired(h.outside(), h.report())
	}
}

// refused reports that it was refused instead, after so long at the backend.
func (h *hold) refused(why report.Outcome, atBackend bool, waited time.Duration) {
	if h.inLine() && (h.turn.Queued() || atBackend) {
		h.name.Left(time.Since(h.turnAt) / time.Duration(max(h.turn.Permits(), 1)))
	}
	h.name.Refused(why)
	if h.observer.Measures() {
		c := h.values()
		c.DistributedWait = waited
		h.observer.Refused(h.outside(), &c, why, atBackend)
	}
}

// inLine reports that the caller takes a place in line, and does not enter together with others.
func (h *hold) inLine() bool { return h.mode == distributed.Exclusive || h.turn.Permits() > 0 }

// ended reports that the functions have returned. lost: the lease had expired by then.
func (h *hold) ended(now time.Time, lost bool) {
	t := report.Turn{Took: now.Sub(h.turnAt), Callers: max(h.use.Batch(), 1), InLine: h.inLine(), Lost: lost}
	if h.turn.Permits() > 0 {
		t.Took /= time.Duration(h.turn.Beside()) // so many turns pass at a time
	}
	t.Degraded = h.observer.MayDegrade() && h.use.Degraded()
	h.name.Ended(t)
	if h.observer.Measures() {
		h.observer.Ended(h.outside(), h.report(), now, lost, t.Degraded)
	}
}

// warn logs what is wrong with the hold.
func (h *hold) warn(what string) {
	h.observer.Warn(h.outside(), what, &h.name.Name, h.key, slog.Uint64("fence", h.use.Fence()),
		slog.Duration("held", time.Since(h.use.Began())), slog.String("mode", h.mode.String()))
}

// inquire asks who broke the lock, which is lost.
func (h *hold) inquire() {
	if q := h.observer.Inquire(h.outside(), report.Loss{Name: &h.name.Name, Key: h.key, Fence: h.use.Fence(), Began: h.use.Began()}); q != nil {
		h.inquiry.Store(q)
	}
}
