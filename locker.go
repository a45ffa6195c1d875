package wllock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Locker is one instance: a local queue in front of a backend. Make one per process and system, with New, and Close it
// at the end. All methods are safe for concurrent use.
type Locker struct {
	system   string
	instance string
	backend  distributed.Backend
	settings settings
	limit    atomic.Int64 // default threshold
	names    names
	queue    *local.Queue[*tenure.Tenure]
	tenures  *tenure.Group
	limits   *deadline.Set[*hold] // when each hold overstays
	breaker  *outage.Breaker      // nil: LocalOnly
	outage   *outage.LocalOnly    // nil: FailClosed
	watch    *telemetry           // nil: nobody measures
	teller
}

// instanceLength is how many letters of 5 bits make an instance's id: 80 bits, enough never to meet another.
const instanceLength = 16

// New returns a Locker for the locks of system, which all processes that share them give alike. It does not talk to the
// backend: see Ping. Everything that is wrong with its arguments is in the one error.
func New(system string, backend distributed.Backend, opts ...Option) (*Locker, error) {
	s := defaultSettings()
	if err := checkPart("system", system); err != nil {
		s.errs = append(s.errs, err)
	}
	if backend == nil {
		s.wrong("backend is nil: want one, for example memlock.New()")
	}
	for _, o := range opts {
		o.apply(&s)
	}
	s.check()
	if len(s.errs) > 0 {
		return nil, fmt.Errorf("wllock: %w", errors.Join(s.errs...))
	}
	l := &Locker{system: system, instance: rand.Text()[:instanceLength], backend: backend, settings: s}
	l.limit.Store(int64(s.defaults.threshold))
	l.tenures = tenure.NewGroup(l.tenureConfig())
	l.queue = local.New(l.tenures.New)
	l.limits = deadline.New(func(_ time.Time, due []*hold) {
		for _, h := range due {
			h.overstay()
		}
	})
	var err error
	l.watch, err = newTelemetry(l)
	return l, err
}

// tenureConfig puts between the tenures and the backend what the outage is met with.
func (l *Locker) tenureConfig() tenure.Config {
	s := &l.settings
	c := tenure.Config{
		Instance: l.instance, TTL: s.leaseTTL,
		MaxHandoffs: s.maxHandoffs, MaxTenure: s.maxTenure, Linger: s.linger,
		Queue: (*turns)(l), Failed: l.releaseFailed,
	}
	if s.meters != nil {
		c.Renewed = l.renewed
	}
	if s.outage == LocalOnly {
		l.outage = outage.NewLocalOnly(l.backend, s.leaseTTL, s.logger)
		c.Backend, c.Outage = l.outage, l.outage
	} else {
		l.breaker = outage.NewBreaker(l.backend, s.logger)
		c.Backend, c.Outage = l.breaker, l.breaker
	}
	return c
}

// check looks at what call options were given for all calls and for names.
func (s *settings) check() {
	if s.defaults.err != nil {
		s.errs = append(s.errs, s.defaults.err)
	}
	for name, with := range s.names {
		if c := with(callOptions{}); c.err != nil {
			s.errs = append(s.errs, fmt.Errorf("WithName(%s): %w", nametext.Quote(name), c.err))
		}
	}
}

// turns is what the tenures need of the local queue.
type turns Locker

func (t *turns) Idle(key string) (tenure.Turn, bool) {
	turn := new(local.Turn[*tenure.Tenure])
	return turn, t.queue.Idle(turn, key)
}

func (t *turns) Unpin(key string) { t.queue.Unpin(key) }

// pass hands the turn on, with what the tenure has at hand; if nobody waits, that goes back to the backend.
func (l *Locker) pass(turn *local.Turn[*tenure.Tenure], t *tenure.Tenure) {
	if turn.Pass() == local.Kept {
		t.Release(turn)
	}
}

// Ping asks the backend whether it can do its work: readiness. The error Is ErrUnavailable or the context's.
func (l *Locker) Ping(ctx context.Context) error {
	if err := l.backend.Ping(ctx); err != nil {
		return fmt.Errorf("wllock: ping: %w", public(ctx, err))
	}
	return nil
}

// Close lets no new caller in (ErrClosed), sends those that wait away with ErrClosed, and waits until the functions that
// hold locks have returned, guards nested in them included, and every lease has been given back. When ctx ends before
// that, the contexts of these functions end with ErrClosed, their leases are renewed no more, and Close returns the
// context's error. It closes no backend that it was given, unless WithOwnedBackend. Repeated calls do the same again.
func (l *Locker) Close(ctx context.Context) error {
	l.queue.Close()
	l.tenures.Close()
	for _, t := range l.inUse() {
		t.EndLinger()
	}
	err := l.drained(ctx)
	l.limits.Close()
	l.tenures.Stop()
	if l.outage != nil {
		l.outage.Stop()
	} else {
		l.breaker.Stop()
	}
	if l.settings.owned {
		err = errors.Join(err, l.backend.Close())
	}
	l.told(ctx)
	return errors.Join(err, l.watch.close())
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

// abandon ends the contexts of all who hold locks, and the keeping of their leases.
func (l *Locker) abandon(ctx context.Context) error {
	held := 0
	for _, t := range l.inUse() {
		t.Abandon(func(o tenure.Owner) {
			held++
			o.(*hold).end(ErrClosed)
		})
	}
	return fmt.Errorf("wllock: close: %d locks were still held: %w", held, ctx.Err())
}

// inUse returns the tenures of all keys that are in use.
func (l *Locker) inUse() []*tenure.Tenure {
	var all []*tenure.Tenure
	l.queue.Each(func(_ string, t *tenure.Tenure, _ int) { all = append(all, t) })
	return all
}

// log tells of what has happened to a hold.
func (l *Locker) log(what string, h *hold) {
	l.warn(h.parent, what, h.name, h.key, slog.Uint64("fence", h.use.Fence()),
		slog.Duration("held", time.Since(h.use.Began())), slog.String("mode", h.mode.String()))
}

// warn names the key only to a logger that takes debug lines, for keys may hold personal data.
func (l *Locker) warn(ctx context.Context, what string, n *nameState, key string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("system", l.system), slog.String("name", n.name))
	if l.settings.logger.Enabled(ctx, slog.LevelDebug) {
		attrs = append(attrs, slog.String("key", nametext.Quote(key)))
	}
	l.settings.logger.LogAttrs(ctx, slog.LevelWarn, what, attrs...)
}

func (l *Locker) releaseFailed(tag any, key string, err error) {
	n := tag.(*nameState)
	if errors.Is(err, distributed.ErrLeaseLost) { // or else LeaseLost would have come
		n.lost.Add(1)
		l.tell(func() {
			l.watch.lost(n)
			l.warn(context.Background(), "lock was lost before it was given back", n, key)
		})
		return
	}
	if l.outage != nil && l.outage.Degraded() {
		return // told of once for all: here nobody waits for it
	}
	l.tell(func() {
		l.warn(context.Background(), "lock not given back: others wait until its lease is over", n, key, slog.String("error", err.Error()))
	})
}
