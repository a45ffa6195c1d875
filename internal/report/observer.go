// Package report tells others what happens to locks: it alone counts for Stats, measures for OpenTelemetry, and logs. It knows no
// hold and no Locker: it takes values, so that what waits to be reported keeps no hold alive.
package report

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/distributed"
)

// Observer reports what happens to the locks of a Locker. What it calls of loggers, tracers, meters and a listener can neither keep its
// callers waiting nor panic in them (see notifier). Each of these has a notifier of its own, so that one that stands still does
// not silence the others.
//
// What is counted always are the figures of the Name. The methods that take a Call are for those that have asked Measures first, because
// to put the values together costs.
type Observer struct {
	System    string
	Redaction *Redaction // nil: keys are shown
	logger    logger
	listener  func(Event) // nil: nobody listens
	telemetry *telemetry  // nil: nobody measures; set by Watch, as is state
	state     State
	lastLost  atomic.Pointer[LostLock] // nil: none was yet
	jobs      jobs

	mishaps
	logs, spans, metrics notifier
	events               notifier
	inquiries            notifier // of the backend, which is foreign code as well
	starts               attempts // of spans
}

// Config says whose locks an observer reports, and to whom.
type Config struct {
	System, Instance string
	Redact           func(key string) string // nil: keys are shown
	Logger           slog.Handler
	Listener         func(Event)          // nil: none
	Tracers          trace.TracerProvider // nil: none
	Meters           metric.MeterProvider // nil: none
	SpanKeys         bool
}

// State is what an observer asks of what it reports about.
type State struct {
	Names      iter.Seq2[*Figures, int] // of all names so far, with how many callers may wait per key
	Available  func() bool              // locks can be acquired at the backend
	Lost       func() bool              // notes a lock that was lost. true: an outage's log lines tell of it
	Unreleased func() bool              // the same for a release without an answer
	Degraded   func() bool              // locks are held without leases now. nil: they never are, because the policy is not LocalOnly
	Inspector  distributed.Inspector    // nil: the backend cannot tell who has a lock
	Recorder   distributed.Recorder     // nil: it does not keep how jobs ended
}

// Call is what is reported about one caller: which lock it asked for, how long it waited, and what it got. It does not change any more
// once it has been reported, so that reports of one caller can share it.
type Call struct {
	Name *Name
	Key  string // full name
	Mode distributed.Mode

	Queued          bool
	Handoff         bool
	Degraded        bool // it got the lock without a lease
	Fence           uint64
	TurnAt          time.Time // when the caller got its turn
	LocalWait       time.Duration
	DistributedWait time.Duration // from then on until it got the lock
	Spans           *Spans        // nil: not traced
}

// began is when the caller got the lock.
func (c *Call) began() time.Time { return c.TurnAt.Add(c.DistributedWait) }

// New returns an observer that logs. Watch starts the rest.
func New(c Config) *Observer {
	o := &Observer{System: c.System, Redaction: newRedaction(c.Redact), listener: c.Listener}
	o.mishaps.log = o.logPanic
	for _, n := range []*notifier{&o.logs, &o.spans, &o.metrics, &o.events, &o.inquiries} {
		n.mishaps, n.loop = &o.mishaps, n.work
	}
	o.starts = attempts{mishaps: &o.mishaps, slots: make(chan struct{}, maxAttempts)}
	o.logger = logger{to: c.Logger, instance: c.Instance, redaction: o.Redaction, notifier: &o.logs}
	return o
}

// Watch comes once, before anything but log lines is reported.
func (o *Observer) Watch(c Config, s State) (err error) {
	o.state = s
	o.telemetry, err = newTelemetry(&c, o, s)
	return err
}

// Log is a logger for what reports by itself. Its lines go the way of the observer's own.
func (o *Observer) Log() *slog.Logger { return slog.New(o.logger) }

// Measures reports whether there is a meter, a tracer or a listener. Then Calls are to be reported.
func (o *Observer) Measures() bool { return o.telemetry != nil || o.listener != nil }

// Traces reports whether there is a tracer.
func (o *Observer) Traces() bool { return o.telemetry != nil && o.telemetry.tracer != nil }

// Began is called before a caller waits. The span it starts ends with Acquired, or with Refused. It is small without a tracer.
func (o *Observer) Began(ctx context.Context, n *Name, key string, w *Wait) (context.Context, *Spans) {
	if !o.Traces() {
		return ctx, nil
	}
	// ctx is not assigned to: a variable that a closure shares is allocated at the top, for callers without telemetry, too.
	traced, span := o.telemetry.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		return o.telemetry.open(ctx, n.Text, key)
	})
	if span == nil {
		return traced, nil
	}
	return traced, &Spans{acquire: span, outer: ctx}
}

// BeganAll is Began for a DoAll, with the names and keys that its caller does not hold already: its calls share their spans. That of
// the acquisition ends with GotAll, or with the first call that is refused or ends, and that of the hold with the first call that ends.
// The caller has asked Traces.
func (o *Observer) BeganAll(ctx context.Context, names, keys []string, w *Wait) (context.Context, *Spans) {
	traced, span := o.telemetry.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		return o.telemetry.openAll(ctx, names, keys)
	})
	if span == nil {
		return traced, nil
	}
	return traced, &Spans{acquire: span, outer: ctx, names: names, keys: keys}
}

// Inside starts the span of a hold that has just begun, and returns the context for its function, with that span in it. ctx is the
// hold's, or that of its DoAll, whose last key the call is. Like that of a batch it is waited for with the lock held, because what the
// function does belongs to it. The wait is within what is left of the caller's patience (rule T10). The call has Spans, so its first
// span came in time. ok: there is a span.
func (o *Observer) Inside(ctx context.Context, c *Call, w *Wait) (traced context.Context, ok bool) {
	s, t := c.Spans, o.telemetry
	traced, span := t.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		if s.keys != nil {
			return t.openHoldOf(ctx, s, c.began(), t.keysOf(s.keys),
				attribute.StringSlice("wllock.names", s.names), attribute.Int("wllock.key.count", len(s.keys)))
		}
		return t.openHold(ctx, c, c.began(), c.granted()...)
	})
	if span == nil {
		return ctx, false
	}
	if !s.begin(span) { // the lock is lost already
		o.spans.put(report{run: traceEnded, call: c, hold: span, at: time.Now(), lost: true})
	}
	return traced, true
}

// report queues r for the tracer if the caller is traced, and for the meter if there is one.
func (o *Observer) report(r report, trace, measure func(*report)) {
	if r.telemetry = o.telemetry; r.telemetry == nil {
		return
	}
	if r.call.Spans != nil {
		r.run = trace
		o.spans.put(r)
	}
	if r.telemetry.acquire != nil {
		r.run = measure
		o.metrics.put(r)
	}
}

// Acquired is called when the caller has the lock.
func (o *Observer) Acquired(ctx context.Context, c *Call) {
	o.report(report{ctx: ctx, call: c}, traceAcquired, measureAcquired)
	o.tell(EventAcquired, c.began(), c, nil)
}

// GotAll is called when a DoAll, whose last key the call is, has acquired all of its keys, with the waits for all of them.
func (o *Observer) GotAll(c *Call, localWait, distributedWait time.Duration) {
	if c.Spans == nil {
		return
	}
	o.spans.put(report{call: c, run: func(r *report) {
		span := r.call.Spans.acquire
		span.SetAttributes(waits(localWait, distributedWait)...)
		span.End(trace.WithTimestamp(r.call.began()))
	}})
}

// Refused is called instead of Acquired. The waits of the call are those until now.
func (o *Observer) Refused(ctx context.Context, c *Call, why Outcome, atBackend bool, err error) {
	now := time.Now()
	o.report(report{ctx: ctx, call: c, why: why, atBackend: atBackend, at: now}, traceRefused, measureRefused)
	o.tell(EventRefused, now, c, err)
}

// Ended is called when the functions of a hold have returned. loss: its lease had expired by then. nil: it had not.
func (o *Observer) Ended(ctx context.Context, c *Call, now time.Time, loss error, degraded bool) {
	r := report{ctx: ctx, call: c, at: now, lost: loss != nil, degraded: degraded}
	if c.Spans != nil {
		r.hold = c.Spans.end()
	}
	o.report(r, traceEnded, measureEnded)
	o.ended(now, c, loss, degraded)
}

// MayDegrade reports that locks may be held without leases.
func (o *Observer) MayDegrade() bool { return o.state.Degraded != nil }

// Left is called when a caller has passed its turn on. It waits for telemetry that is behind.
func (o *Observer) Left(w *Wait) {
	if o.telemetry != nil {
		o.spans.yield(w)
		o.metrics.yield(w)
	}
	if o.listener != nil {
		o.events.yield(w)
	}
}

// LostLock is a lock that was lost while it was held.
type LostLock struct {
	At  time.Time
	Key string // full name
	Err error
}

// Unrenewed are the attributes of a log line for a lock that was lost: why its lease was not renewed, and since when that is known.
func Unrenewed(lost error) []slog.Attr {
	if e, ok := errors.AsType[*distributed.LostError](lost); ok {
		return []slog.Attr{slog.String("renewal_error", e.Err.Error()), slog.Time("renewal_failed_at", e.At)}
	}
	return nil
}

// LastLost returns the last lock that was lost while it was held, with its name as it is shown. nil: none was yet.
func (o *Observer) LastLost() *LostLock {
	l := o.lastLost.Load()
	if l == nil {
		return nil
	}
	return &LostLock{l.At, o.Redaction.Name(l.Key), l.Err}
}

// LostByOutage notes a lock that was lost while it was held. true: by an outage, and one line tells of all of them.
func (o *Observer) LostByOutage(key string, err error) bool {
	o.lastLost.Store(&LostLock{At: time.Now(), Key: key, Err: o.Redaction.Error(err)})
	return o.state.Lost()
}

// ReleaseFailed implements tenure.Config.Failed, whose tag is a *Name. If the answer is that the lock was lost, no hold noticed the
// loss: it would have ended with the lease.
func (o *Observer) ReleaseFailed(tag any, key string, err error) {
	n, ctx := tag.(*Name), context.Background()
	if errors.Is(err, distributed.ErrLeaseLost) {
		n.Lost.Add(1)
		o.lostUnnoticed(n, key, err)
		if t := o.telemetry; t != nil && t.losses != nil {
			o.metrics.put(report{run: func(*report) { t.count(ctx, t.losses, n.Figures) }})
		}
		if !o.LostByOutage(key, err) {
			o.Warn(ctx, "lock was lost before it was released", n, key)
		}
		return
	}
	if o.state.Degraded != nil && o.state.Degraded() || o.state.Unreleased() {
		return // one line tells of all of them
	}
	o.Warn(ctx, "lock not released: others wait until its lease has expired", n, key, slog.String("error", o.Redaction.Error(err).Error()))
}

// Renewed implements tenure.Config.Renewed. It is called only if there is a meter.
func (o *Observer) Renewed(tag any, err error) {
	o.metrics.put(report{run: func(*report) { o.telemetry.renewed(tag.(*Name).Figures, err) }})
}

// Warn logs what is wrong with a lock. It includes the key only for a logger that takes debug lines, because keys may hold personal data, or redacted.
func (o *Observer) Warn(ctx context.Context, what string, n *Name, key string, attrs ...slog.Attr) {
	line := slog.NewRecord(time.Now(), slog.LevelWarn, what, 0)
	line.AddAttrs(attrs...)
	line.AddAttrs(slog.String("system", o.System), slog.String("name", n.Text))
	o.logger.put(ctx, line, key)
}

// logPanic is called once: a hook that panics may do so at every call.
func (o *Observer) logPanic(panicked any) {
	line := slog.NewRecord(time.Now(), slog.LevelError, "logger, telemetry or event function panicked; further panics are only counted, in Stats", 0)
	line.AddAttrs(slog.String("system", o.System), slog.String("panic", o.Redaction.Text(fmt.Sprint(panicked))))
	o.logger.put(context.Background(), line, "")
}

// TooManyNames is called once, for the first name beyond most.
func (o *Observer) TooManyNames(most int) {
	line := slog.NewRecord(time.Now(), slog.LevelWarn, "too many lock names: further ones are counted together as "+Others+
		". Put what differs into the key, not into the name", 0)
	line.AddAttrs(slog.String("system", o.System), slog.Int("names", most))
	o.logger.put(context.Background(), line, "")
}

// collected waits for the measurements made so far, for a meter that is about to collect.
func (o *Observer) collected(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	o.metrics.flush(ctx, maxReports)
}

// Inquired waits, until ctx ends, for what the backend is asked: before it is closed.
func (o *Observer) Inquired(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()
	o.inquiries.flush(ctx, math.MaxInt64)
}

// Close takes the Locker off the meter and waits for all reports, until ctx ends or closePatience has passed, whichever
// comes first. The error says what is left.
func (o *Observer) Close(ctx context.Context) error {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })() // time for what does not stand still
	failed := make(chan error, 1)
	if t := o.telemetry; t != nil && t.registration != nil {
		o.metrics.add(report{run: func(*report) {
			failed <- t.registration.Unregister()
			lockerNumbers.giveBack(o.System, t.number)
		}}, math.MaxInt64)
	}
	spans := o.starts.flush(patient) + o.spans.flush(patient, math.MaxInt64)
	metrics := o.metrics.flush(patient, math.MaxInt64)
	events := o.events.flush(patient, math.MaxInt64)
	logs := o.logs.flush(patient, math.MaxInt64) // at last, for panics of the others
	if logs+metrics+spans+events > 0 {
		return fmt.Errorf("wllock: close: logger, telemetry or event function stands still: %d log lines, %d measurements, %d reports on spans "+
			"and %d events are left", logs, metrics, spans, events)
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// Mishaps returns how often foreign code has panicked, and how many reports were left out because it stood still.
func (o *Observer) Mishaps() (panics, dropped uint64) { return o.panics.Load(), o.dropped.Load() }
