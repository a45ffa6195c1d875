package wllock

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// inquiryTime is how long a backend has to say who broke a lock, from the loss on. Only the error of the hold waits for that.
const inquiryTime = 500 * time.Millisecond

// inquiry asks the backend whether a lock that was lost had been broken, so that its holder is told by whom and why. The goroutine of
// observer.inquiries writes found and then closes done. The error that waits for it gives up when asked ends.
type inquiry struct {
	asked context.Context
	done  chan struct{}
	found *distributed.Breaking // valid once done is closed
}

// inquire starts an inquiry about a hold that has lost its lock. There is one at a time: a Break is done by hand, and when many locks are
// lost at once it was something else.
func (o *observer) inquire(h *hold) {
	if o.inspector == nil {
		return
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(h.outside()), inquiryTime)
	q := &inquiry{asked: asked, done: make(chan struct{})}
	ask := func(*report) {
		defer cancel()
		defer close(q.done)
		q.found = o.breaking(asked, h)
	}
	if !o.inquiries.add(report{run: ask}, 1) {
		cancel()
		return
	}
	h.inquiry.Store(q)
}

// breaking returns the record of the Break that ended the hold's lease, and logs it; nil: there was none, or it is not known.
func (o *observer) breaking(ctx context.Context, h *hold) *distributed.Breaking {
	found, err := o.inspector.Inspect(ctx, h.key)
	if b := found.Broken; err == nil && b != nil && h.endedBy(b, o.logger.instance) {
		said := *b
		said.Reason = o.redaction.text(b.Reason, h.key)
		o.warn(h.outside(), "lock was broken", h.name, h.key, slog.Uint64("fence", h.use.Fence()),
			slog.String("by", nametext.Quote(said.By)), slog.String("reason", nametext.Quote(said.Reason)))
		return &said
	}
	return nil
}

// endedBy reports whether a Break was of this hold's lease, and not of an earlier one or of another holder's. All that come after a Break
// have larger fences; without fences the clocks have to tell.
func (h *hold) endedBy(b *distributed.Breaking, instance string) bool {
	if b.Fence < h.use.Fence() || b.Fence == 0 && b.At.Before(h.use.Began()) {
		return false
	}
	rest, ours := strings.CutPrefix(b.Holder, instance) // a permit's number, or how many more holders, may follow, but no number of another Locker
	return ours && (rest == "" || rest[0] == '#' || rest[0] == ' ') || strings.HasSuffix(b.Holder, " more")
}

// broken is what the inquiry has found, if there was one. It waits for that: the lock is gone, so only its caller is late.
func (h *hold) broken() *distributed.Breaking {
	q := h.inquiry.Load()
	if q == nil {
		return nil
	}
	select {
	case <-q.done:
	case <-q.asked.Done():
	}
	select {
	case <-q.done: // first, since asked has ended as well then
		return q.found
	default:
		return nil
	}
}
