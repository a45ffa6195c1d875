package wllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// observer reports what happens to locks. It alone counts for Stats, measures for OpenTelemetry, and logs. What it calls of
// loggers, tracers and meters can neither keep its callers waiting nor panic in them (see notifier). Each of the three has
// a notifier of its own, so that one that stands still does not silence the others.
type observer struct {
	system    string
	redaction *redaction // nil: keys are shown
	logger    logger
	telemetry *telemetry // nil: nobody measures
	backend   policy
	inspector distributed.Inspector // nil: the backend cannot tell who has a lock
	degraded  func() bool           // locks are held without leases now; nil: never, unless LocalOnly

	mishaps
	logs, spans, metrics notifier
	inquiries            notifier // of the backend, which is foreign code as well
	starts               attempts // of spans
}

func newObserver(system, instance string, s *settings) *observer {
	o := &observer{system: system, redaction: newRedaction(system, s.redact)}
	o.mishaps.log = o.logPanic
	for _, n := range []*notifier{&o.logs, &o.spans, &o.metrics, &o.inquiries} {
		n.mishaps, n.loop = &o.mishaps, n.work
	}
	o.starts = attempts{mishaps: &o.mishaps, slots: make(chan struct{}, maxAttempts)}
	o.logger = logger{to: s.logger.Handler(), instance: instance, redaction: o.redaction, notifier: &o.logs}
	return o
}

// began is called before a caller waits; the span it starts ends with acquired, or with refused. Like those, it
// is small where nobody measures.
func (o *observer) began(ctx context.Context, c *call) context.Context {
	if o.telemetry == nil || o.telemetry.tracer == nil {
		return ctx
	}
	name, key := c.name.name, c.key
	// ctx is not assigned to: a variable that a closure shares is allocated at the top, for callers without telemetry, too.
	traced, span := o.telemetry.start(ctx, &o.starts, &c.foreign, func() (context.Context, trace.Span) {
		return o.telemetry.open(ctx, name, key)
	})
	if span != nil {
		c.spans = &spans{acquire: span, outer: ctx}
	}
	return traced
}

// beganAll is began for a DoAll: its calls share their spans. That of the acquisition ends with gotAll, or with the first call that is
// refused or ends, and that of the hold with the first call that ends.
func (o *observer) beganAll(ctx context.Context, members []member, w *foreignWait) (context.Context, *spans) {
	if o.telemetry == nil || o.telemetry.tracer == nil || !slices.ContainsFunc(members, func(m member) bool { return !m.outer }) {
		return ctx, nil
	}
	names, keys := asked(members)
	traced, span := o.telemetry.start(ctx, &o.starts, w, func() (context.Context, trace.Span) {
		return o.telemetry.openAll(ctx, names, keys)
	})
	if span == nil {
		return traced, nil
	}
	return traced, &spans{acquire: span, outer: ctx, several: true}
}

// asked returns the names and keys of a DoAll that its caller does not hold already.
func asked(members []member) (names, keys []string) {
	for i := range members {
		if m := &members[i]; !m.outer {
			names, keys = append(names, m.name.name), append(keys, m.key)
		}
	}
	return slices.Compact(names), keys
}

// report queues r for the tracer if the caller is traced, and for the meter if there is one.
func (o *observer) report(r report, trace, measure func(*report)) {
	if r.telemetry = o.telemetry; r.telemetry == nil {
		return
	}
	if r.call.spans != nil {
		r.run = trace
		o.spans.put(r)
	}
	if r.telemetry.acquire != nil {
		r.run = measure
		o.metrics.put(r)
	}
}

// acquired is called when the caller has the lock.
func (o *observer) acquired(ctx context.Context, c *call) {
	c.name.held.Add(1)
	c.name.acquired.Add(1)
	if c.use.Handoff() {
		c.name.handoffs.Add(1)
	}
	if o.telemetry != nil {
		o.report(report{ctx: ctx, call: c}, traceAcquired, measureAcquired)
	}
}

// refused is called instead of acquired.
func (o *observer) refused(ctx context.Context, c *call, e *Error, why outcome) {
	if counts := c.mode == distributed.Exclusive || c.turn.Permits() > 0; counts && (c.turn.Queued() || e.Tier == TierDistributed) {
		took := time.Since(c.turnAt) / time.Duration(max(c.turn.Permits(), 1)) // in line: a caller that leaves delays those behind it by no time at all
		c.name.wait.took(took, 1)
	}
	switch why {
	case queueFull:
		c.name.shed.Add(1)
	case unavailable:
		c.name.unavailable.Add(1)
	case timedOut:
		c.name.timeouts.Add(1)
	}
	if o.telemetry != nil {
		o.report(report{ctx: ctx, call: c, err: e, why: why, at: time.Now()}, traceRefused, measureRefused)
	}
}

// ended is called when the functions of a hold have returned. lost: its lease had expired by then.
func (o *observer) ended(ctx context.Context, c *call, now time.Time, lost bool) {
	degraded := o.count(c, now, lost)
	if o.telemetry != nil {
		r := report{ctx: ctx, call: c, at: now, lost: lost, degraded: degraded}
		if c.spans != nil {
			r.hold = c.spans.end()
		}
		o.report(r, traceEnded, measureEnded)
	}
}

// left is called when a caller has passed its turn on. It waits for telemetry that is behind.
func (o *observer) left(w *foreignWait) {
	if o.telemetry != nil {
		o.spans.yield(w)
		o.metrics.yield(w)
	}
}

// lost is called instead of ended when a hold has lost its lease.
func (o *observer) lost(h *hold) {
	o.ended(h.outside(), &h.call, time.Now(), true)
	if o.backend.Lost() {
		return // by an outage, and one line tells of all of them
	}
	o.logHold(h.outside(), "lock lost while held", &h.call)
	o.inquire(h)
}

// count updates the counters when a turn ends.
func (o *observer) count(c *call, now time.Time, lost bool) (degraded bool) {
	turn, callers, permit := now.Sub(c.turnAt), max(c.use.Batch(), 1), c.turn.Permits() > 0
	if permit {
		turn /= time.Duration(c.turn.Beside()) // so many turns pass at a time
	}
	c.name.took(turn, callers)
	if c.mode == distributed.Exclusive || permit {
		c.name.wait.took(turn, callers)
	}
	if lost {
		c.name.lost.Add(1)
	}
	degraded = o.degraded != nil && c.use.Degraded()
	if degraded {
		c.name.degraded.Add(1)
	}
	c.name.held.Add(-1)
	return degraded
}

// overstayed is called when a hold has lasted for LockTimeMax.
func (o *observer) overstayed(ctx context.Context, c *call) {
	c.name.overstays.Add(1)
	o.logHold(ctx, "lock held for longer than its maximum", c)
}

// releaseFailed implements tenure.Config.Failed. If the answer is that the lock was lost, no hold noticed the loss: it
// would have ended with the lease.
func (o *observer) releaseFailed(tag any, key string, err error) {
	n, ctx := tag.(*nameState), context.Background()
	if errors.Is(err, distributed.ErrLeaseLost) {
		n.lost.Add(1)
		if t := o.telemetry; t != nil && t.losses != nil {
			o.metrics.put(report{run: func(*report) { t.count(ctx, t.losses, n) }})
		}
		if !o.backend.Lost() {
			o.warn(ctx, "lock was lost before it was released", n, key)
		}
		return
	}
	if o.degraded != nil && o.degraded() || o.backend.Unreleased() {
		return // one line tells of all of them
	}
	o.warn(ctx, "lock not released: others wait until its lease has expired", n, key, slog.String("error", o.redaction.error(err, key).Error()))
}

// renewed implements tenure.Config.Renewed; it is set only if somebody measures.
func (o *observer) renewed(tag any, err error) {
	o.metrics.put(report{run: func(*report) { o.telemetry.renewed(tag.(*nameState), err) }})
}

func (o *observer) logHold(ctx context.Context, what string, c *call) {
	o.warn(ctx, what, c.name, c.key, slog.Uint64("fence", c.use.Fence()),
		slog.Duration("held", time.Since(c.use.Began())), slog.String("mode", c.mode.String()))
}

// warn includes the key only for a logger that takes debug lines, because keys may hold personal data, or redacted.
func (o *observer) warn(ctx context.Context, what string, n *nameState, key string, attrs ...slog.Attr) {
	line := slog.NewRecord(time.Now(), slog.LevelWarn, what, 0)
	line.AddAttrs(attrs...)
	line.AddAttrs(slog.String("system", o.system), slog.String("name", n.name))
	shown := slog.String("key", nametext.Quote(o.redaction.name(key)))
	if o.redaction != nil {
		line.AddAttrs(shown)
		o.logger.put(ctx, line)
		return
	}
	o.logger.put(ctx, line, shown)
}

// logPanic is called once: a hook that panics may do so at every call.
func (o *observer) logPanic(panicked any) {
	line := slog.NewRecord(time.Now(), slog.LevelError, "logger or telemetry panicked; further panics are only counted, in Stats", 0)
	line.AddAttrs(slog.String("system", o.system), slog.String("panic", o.redaction.text(fmt.Sprint(panicked), "")))
	o.logger.put(context.Background(), line)
}

// tooManyNames is called once.
func (o *observer) tooManyNames() {
	line := slog.NewRecord(time.Now(), slog.LevelWarn, "too many lock names: further ones are counted together as "+otherNames+
		"; a name is a kind of thing, and which one is the key", 0)
	line.AddAttrs(slog.String("system", o.system), slog.Int("names", maxNames))
	o.logger.put(context.Background(), line)
}

// collected waits for the measurements made so far, for a meter that is about to collect.
func (o *observer) collected(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	o.metrics.flush(ctx, maxReports)
}

// inquired waits, until ctx ends, for what the backend is asked: before it is closed.
func (o *observer) inquired(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()
	o.inquiries.flush(ctx, math.MaxInt64)
}

// close takes the Locker off the meter and waits for all reports, until ctx ends or closePatience has passed, whichever
// comes first. The error says what is left.
func (o *observer) close(ctx context.Context) error {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })() // time for what does not stand still
	failed := make(chan error, 1)
	if t := o.telemetry; t != nil && t.registration != nil {
		o.metrics.add(report{run: func(*report) { failed <- t.registration.Unregister() }}, math.MaxInt64)
	}
	spans := o.starts.flush(patient) + o.spans.flush(patient, math.MaxInt64)
	metrics := o.metrics.flush(patient, math.MaxInt64)
	logs := o.logs.flush(patient, math.MaxInt64) // at last, for panics of the others
	if logs+metrics+spans > 0 {
		return fmt.Errorf("wllock: close: logger or telemetry stands still: %d log lines, %d measurements and %d reports on spans are left",
			logs, metrics, spans)
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
