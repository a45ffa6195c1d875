package report

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

// Loss is a hold that has lost its lock.
type Loss struct {
	Name  *Name
	Key   string // full name
	Fence uint64
	Began time.Time
}

// Inquiry asks the backend whether a lock that was lost had been broken, so that its holder is told by whom and why. The goroutine of
// Observer.inquiries writes found and then closes done. The error that waits for it gives up when asked ends.
type Inquiry struct {
	asked context.Context
	done  chan struct{}
	found *distributed.Breaking // valid once done is closed
}

// Inquire starts an inquiry about a hold that has lost its lock. There is one at a time: a Break is done by hand, and when many locks are
// lost at once it was something else. It returns nil if it does not ask.
func (o *Observer) Inquire(ctx context.Context, l Loss) *Inquiry {
	if o.state.Inspector == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), inquiryTime)
	q := &Inquiry{asked: asked, done: make(chan struct{})}
	ask := func(*report) {
		defer cancel()
		defer close(q.done)
		q.found = o.breaking(asked, ctx, &l)
	}
	if !o.inquiries.add(report{run: ask}, 1) {
		cancel()
		return nil
	}
	return q
}

// Ran notes how a job has ended, and has the backend note it, in the background and within inquiryTime.
func (o *Observer) Ran(n *Name, r distributed.Run) {
	o.jobs.ended(r)
	if o.state.Recorder == nil {
		return
	}
	o.inquiries.put(report{run: func(*report) {
		ctx, cancel := context.WithTimeout(context.Background(), inquiryTime)
		defer cancel()
		if err := o.state.Recorder.Record(ctx, r); err != nil {
			o.Warn(ctx, "the end of a job was not recorded", n, r.Key, slog.String("error", o.Redaction.Error(err).Error()))
		}
	}})
}

// breaking returns the record of the Break that ended the hold's lease, and logs it; nil: there was none, or it is not known.
func (o *Observer) breaking(asked, outside context.Context, l *Loss) *distributed.Breaking {
	found, err := o.state.Inspector.Inspect(asked, l.Key)
	if b := found.Broken; err == nil && b != nil && l.by(b, o.logger.instance) {
		said := *b
		said.Reason = o.Redaction.Text(b.Reason)
		o.Warn(outside, "lock was broken", l.Name, l.Key, slog.Uint64("fence", l.Fence),
			slog.String("by", nametext.Quote(said.By)), slog.String("reason", nametext.Quote(said.Reason)))
		return &said
	}
	return nil
}

// by reports whether a Break was of this hold's lease, and not of an earlier one or of another holder's. All that come after a Break
// have larger fences; without fences the clocks have to tell.
func (l *Loss) by(b *distributed.Breaking, instance string) bool {
	if b.Fence < l.Fence || b.Fence == 0 && b.At.Before(l.Began) {
		return false
	}
	rest, ours := strings.CutPrefix(b.Holder, instance) // a permit's number, or how many more holders, may follow, but no number of another Locker
	return ours && (rest == "" || rest[0] == '#' || rest[0] == ' ') || strings.HasSuffix(b.Holder, " more")
}

// Broken is what the inquiry has found, if there was one. It waits for that: the lock is gone, so only its caller is late.
func (q *Inquiry) Broken() *distributed.Breaking {
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
