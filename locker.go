package wllock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/crew"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Locker is one instance: a local queue in front of a backend. Make one per process and system, with New, and Close it
// at the end. All methods are safe for concurrent use.
type Locker struct {
	backend  distributed.Backend
	instance string
	policy   policy
	settings settings
	names    names
	queue    *local.Queue[*tenure.Tenure]
	tenures  *tenure.Group
	holds    *hold.Group // what they share
	batches  *crew.Crew[run]
	told     sync.Pool // of chan struct{}: where leaders of batches wait, who give them back when nobody sends there any more
	observer *report.Observer
}

// policy is the backend as the tenures see it, with what is done while it is unreachable.
type policy interface {
	distributed.Backend
	tenure.Outage
	Degraded() bool        // locks are held without leases now
	Suspect() error        // why the backend probably does not answer, an error that Is ErrUnavailable; nil: it does
	Status() outage.Status // whether locks can be acquired at the backend
	// NoteTTL notes that the system has a lease that may last for d (rule O4).
	NoteTTL(ctx context.Context, d time.Duration) error
	Unreleased() bool // notes a release without an answer; true: an outage's log lines tell of it
	Lost() bool       // the same for a lock that was lost
	Stop()            // ends what the policy does by itself; the backend stays open
}

// New returns a Locker for the locks of system, a name that is the same in all processes that share the locks. It does not contact the backend:
// see Ping. One error reports all that is wrong with the arguments.
func New(system string, backend distributed.Backend, opts ...Option) (*Locker, error) {
	s := defaultSettings()
	if err := checkPart("system", system); err != nil {
		s.errs = append(s.errs, err)
	}
	if backend == nil {
		s.wrong("backend is nil: want one, for example memlock.New()")
	}
	for i, o := range opts {
		if o == nil {
			s.wrong("option %d of %d is nil", i+1, len(opts))
			continue
		}
		o.apply(&s)
	}
	s.check()
	if len(s.errs) > 0 {
		return nil, fmt.Errorf("wllock: %w", report.Join(s.errs...))
	}
	l := &Locker{backend: backend, settings: s, instance: identity.Instance(s.instance)}
	reports := report.Config{
		System: system, Instance: l.instance, Redact: s.redact, Logger: s.logger.Handler(),
		Listener: s.listener(), Tracers: s.tracers, Meters: s.meters, SpanKeys: s.spanKeys,
	}
	l.observer = report.New(reports)
	l.policy = policyFor(system, backend, &s, l.observer)
	l.names.system, l.names.settings = system, &l.settings
	l.names.full = func() { l.observer.TooManyNames(maxNames) }
	l.names.limit.Store(int64(s.defaults.threshold))
	err := l.observer.Watch(reports, l.state())
	l.tenures = tenure.NewGroup(l.tenureConfig())
	l.queue = local.New(l.tenures.New)
	l.holds = hold.NewGroup(l.observer)
	l.batches = crew.New(run.do)
	return l, err
}

// state is what the observer asks the Locker.
func (l *Locker) state() report.State {
	s := report.State{
		Names: l.names.all(), Available: func() bool { return l.policy.Status().Available }, Lost: l.policy.Lost, Unreleased: l.policy.Unreleased,
	}
	s.Inspector, _ = distributed.InspectorOf(l.backend)
	s.Recorder, _ = distributed.RecorderOf(l.backend)
	if l.settings.outage == LocalOnly {
		s.Degraded = l.policy.Degraded
	}
	return s
}

// policyFor wraps the backend in the chosen outage policy.
func policyFor(system string, b distributed.Backend, s *settings, o *report.Observer) policy {
	c := outage.Config{Backend: b, System: system, TTL: s.leaseTTL, Longest: s.longestTTL, Logger: o.Log()}
	if s.outage == LocalOnly {
		return outage.NewLocalOnly(c)
	}
	return outage.NewBreaker(c)
}

func (l *Locker) tenureConfig() tenure.Config {
	s := &l.settings
	c := tenure.Config{
		Backend: l.policy, Outage: l.policy, Instance: l.instance, TTL: s.leaseTTL,
		MaxHandoffs: s.maxHandoffs, MaxTenure: s.maxTenure, Linger: s.linger, Adaptive: s.adaptive,
		Queue: (*turns)(l), Failed: func(tag any, key string, err error) { l.observer.ReleaseFailed(tag, lockOf(key), err) },
	}
	if s.meters != nil {
		c.Renewed = l.observer.Renewed
	}
	return c
}

// turns is what the tenures need of the local queue.
type turns Locker

func (t *turns) Idle(key string, lane int) (tenure.Turn, bool) {
	turn := new(local.Turn[*tenure.Tenure])
	return turn, t.queue.Idle(turn, key, lane)
}

func (t *turns) Unpin(key string, lane int) { t.queue.Unpin(key, lane) }

func (t *turns) Others(key string, lane int) []*tenure.Tenure { return t.queue.Others(key, lane) }

// Backend returns the backend that New was given, for its optional abilities: see distributed.InspectorOf and distributed.RecorderOf.
func (l *Locker) Backend() distributed.Backend { return l.backend }

// System returns the system that New was given.
func (l *Locker) System() string { return l.names.system }

// Ping asks the backend whether a lock of this Locker would work, for readiness checks. It asks a backend that is a distributed.Prober about a
// key of the Locker's system with its lease TTL, so that missing rights show, and a round trip too long for the TTL. It asks others whether they
// can do their work. Ping takes no lock. The error Is ErrUnavailable or the context's.
func (l *Locker) Ping(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	ask := l.backend.Ping
	if p, ok := distributed.ProberOf(l.backend); ok {
		ask = func(ctx context.Context) error {
			return p.Probe(ctx, distributed.Probe{Key: l.names.system + ":ping:ping", TTL: l.settings.leaseTTL})
		}
	}
	if err := ask(ctx); err != nil {
		return fmt.Errorf("wllock: ping: %w", l.public(ctx, err))
	}
	return nil
}

// SetThreshold changes the threshold of a name while the Locker runs. The name "" changes the default, for all names without a threshold of
// their own. Callers that already wait stay.
func (l *Locker) SetThreshold(name string, n int) error { return l.names.setThreshold(name, n) }

// Close admits no new callers (ErrClosed), and sends waiting callers away with ErrClosed. It waits until the functions that hold locks have
// returned, with the guards nested in them, and until every lease has been released. It also waits for batch functions that have lost their
// lock. If ctx ends before that, the contexts of these functions end with ErrClosed, their leases are abandoned, and Close returns the context's
// error.
//
// Close leaves the backend open unless WithOwnedBackend was given. A backend that needs longer than ctx allows continues to close in the
// background. Last, Close waits for log lines, spans and measurements, for 1 s at most. If some are left because a logger, telemetry or the
// function of WithEvents is stuck, the error says how many. Close may be called more than once. With a nil context, Close returns an error at
// once, and closes nothing.
func (l *Locker) Close(ctx context.Context) error { // rule T8
	if ctx == nil {
		return errNilContext
	}
	l.queue.Close()
	l.tenures.Close()
	for _, t := range l.inUse() {
		t.EndLinger()
		t.Stayers(func(o tenure.Owner) { o.(*hold.Hold).EndStay() })
	}
	err := l.drained(ctx)
	if running := l.batches.Close(ctx); err == nil && running != nil { // those that still run have lost their locks
		err = fmt.Errorf("wllock: close: a batch function that has lost its lock has not returned: %w", running)
	}
	l.holds.Close()
	l.tenures.Stop()
	l.observer.Inquired(ctx)
	return report.Join(err, l.disconnect(ctx), l.observer.Close(ctx))
}

// disconnectGrace is how long a backend has to close when ctx has ended: most take no time, and say what went wrong.
const disconnectGrace = 250 * time.Millisecond

// disconnect ends the questions to the backend, and closes it if it is ours. Neither has a context, and a backend that is silent
// takes seconds: when ctx has ended, that goes on in the background.
func (l *Locker) disconnect(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		l.policy.Stop()
		var err error
		if l.settings.owned {
			err = l.backend.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return l.observer.Redaction.Error(err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(disconnectGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return l.observer.Redaction.Error(err)
	case <-grace.C:
		return fmt.Errorf("wllock: close: the backend is still closing: %w", ctx.Err())
	}
}

// drained waits until nobody holds a lock, or ctx ends.
func (l *Locker) drained(ctx context.Context) error {
	select {
	case <-l.queue.Drained(): // also if ctx has ended
		return nil
	default:
	}
	select {
	case <-l.queue.Drained():
		return nil
	case <-ctx.Done():
		return l.abandon(ctx)
	}
}

// abandon ends the contexts of all functions that hold locks, and abandons their leases.
func (l *Locker) abandon(ctx context.Context) error { // rule T8
	var held []string
	for _, t := range l.inUse() {
		t.Abandon(func(o tenure.Owner) {
			h := o.(*hold.Hold)
			held = append(held, h.Key())
			h.End(ErrClosed)
		})
	}
	return fmt.Errorf("wllock: close: %s: %w", l.stillHeld(held), ctx.Err())
}

// stillHeld counts the locks and names the first three keys.
func (l *Locker) stillHeld(keys []string) string {
	const most = 3
	n := len(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys) // of permits
	more := ""
	if len(keys) > most {
		keys, more = keys[:most], ", ..."
	}
	for i, key := range keys {
		keys[i] = nametext.Quote(l.observer.Redaction.Name(key))
	}
	names := strings.Join(keys, ", ") + more
	switch n {
	case 0:
		return "a lease is still on its way back to the backend"
	case 1:
		return "1 lock was still held: " + names
	}
	return fmt.Sprintf("%d locks were still held: %s", n, names)
}

// inUse returns the tenures of all keys in use, and of their permits.
func (l *Locker) inUse() []*tenure.Tenure {
	var all []*tenure.Tenure
	l.queue.Each(func(_ string, _ int, t *tenure.Tenure, _ int) { all = append(all, t) })
	return all
}

// Format implements fmt.Formatter: it prints the system only, because other goroutines write the fields.
func (l *Locker) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "wllock.Locker(%s)", l.names.system)
}
