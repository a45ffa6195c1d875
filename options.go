package wllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/local"
)

// Unlimited, as a threshold, lets any number of callers wait.
const Unlimited = local.Unlimited

// The defaults of a Locker and of its calls.
const (
	DefaultThreshold   = 1000
	DefaultLeaseTTL    = 5 * time.Second
	DefaultMaxHandoffs = 128
	DefaultMaxTenure   = 100 * time.Millisecond
	DefaultLinger      = 200 * time.Microsecond
	DefaultLockTimeMax = 10 * time.Second
)

// Outage is the policy of a Locker while its backend is unreachable.
type Outage uint8

const (
	// FailClosed: calls fail with ErrUnavailable. After some have failed in a row, they fail at once until the backend is back.
	FailClosed Outage = iota
	// LocalOnly: callers wait until the backend has been unreachable for one T, when all leases of other instances have expired. Then
	// they are admitted without a lease, one after the other in each process: Held.Degraded, fence 0. A running hold continues without
	// its lease. Once the backend is back, new callers acquire leases again. During a partition, callers on both sides hold the lock at
	// the same time, and no fence tells them apart.
	LocalOnly
)

// Option configures a Locker.
type Option interface{ apply(*settings) }

// settings are what the options of New set.
type settings struct {
	leaseTTL    time.Duration
	longestTTL  time.Duration // 0: not given
	maxHandoffs int
	maxTenure   time.Duration
	linger      time.Duration
	adaptive    bool   // linger is the default's
	instance    string // its name; "": the host's
	outage      Outage
	owned       bool
	logger      *slog.Logger
	tracers     trace.TracerProvider
	spanKeys    bool
	meters      metric.MeterProvider
	events      func(Event)
	redact      func(key string) string // nil: keys are shown
	defaults    callOptions
	names       map[string]func(callOptions) callOptions
	errs        []error // what was wrong with the options
}

type option func(*settings)

func (o option) apply(s *settings) { o(s) }

func defaultSettings() settings {
	return settings{
		leaseTTL: DefaultLeaseTTL, maxHandoffs: DefaultMaxHandoffs, maxTenure: DefaultMaxTenure,
		linger: DefaultLinger, adaptive: true,
		logger:   slog.New(slog.DiscardHandler),
		defaults: callOptions{threshold: DefaultThreshold, lockTimeMax: DefaultLockTimeMax, maxBatch: DefaultMaxBatch},
		names:    map[string]func(callOptions) callOptions{},
	}
}

// wrong notes a bad option; New reports all of them together.
func (s *settings) wrong(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

// check notes the bad call options that were given for all calls and for names.
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

// WithThreshold sets how many callers may wait per key in this process (default [DefaultThreshold]). The caller at the head, which waits at the
// backend, is not counted. With 0 no caller may wait, and with [Unlimited] there is no threshold.
func WithThreshold(n int) Option { return WithDefaults(threshold("WithThreshold", n)) }

// WithLeaseTTL sets T, the time to live of a lease (default [DefaultLeaseTTL]), at least distributed.MinTTL. Leases are renewed while they are
// held, so T does not limit how long a function may run. It limits how long others wait after a process has died. A renewed lease outlasts a
// backend that does not answer for up to 2T/3. A new one lasts for T/2, so that a process that dies right after it acquired the lock delays
// others less: in its first T/6 it outlasts only T/3. Instances of one system may differ in T. WithLongestTTL says what that means for
// LocalOnly.
func WithLeaseTTL(d time.Duration) Option {
	return option(func(s *settings) {
		s.leaseTTL = d
		if d < distributed.MinTTL {
			s.wrong("WithLeaseTTL(%v): want %v or more, for example %v", d, distributed.MinTTL, DefaultLeaseTTL)
		}
	})
}

// WithLongestTTL declares that no instance of the system has a longer lease TTL than d. By default the Locker uses what the instances have told
// the backend, if it can store that, else WithLeaseTTL. With LocalOnly, callers are admitted without a lease only after the longest T in use,
// when every lease of others has expired.
func WithLongestTTL(d time.Duration) Option {
	return option(func(s *settings) {
		s.longestTTL = d
		if d <= 0 {
			s.wrong("WithLongestTTL(%v): want more than 0, the longest WithLeaseTTL of all instances", d)
		}
	})
}

// WithMaxHandoffs sets how many local callers in a row one lease may serve, after the first, while other instances wait (default
// [DefaultMaxHandoffs]). With 0 each caller asks the backend.
func WithMaxHandoffs(n int) Option {
	return option(func(s *settings) {
		s.maxHandoffs = n
		if n < 0 {
			s.wrong("WithMaxHandoffs(%d): want 0 or more", n)
		}
	})
}

// WithMaxTenure sets for how long one lease may serve local callers in a row while other instances wait
// (default [DefaultMaxTenure]).
func WithMaxTenure(d time.Duration) Option {
	return option(func(s *settings) {
		s.maxTenure = d
		if d <= 0 {
			s.wrong("WithMaxTenure(%v): want more than 0 (for each caller to ask the backend, set WithMaxHandoffs(0))", d)
		}
	})
}

// WithLinger keeps the idle lease of a key for d, for the next local caller, unless another instance wants it. 0: for no time. An instance that
// waits gets the lease at once. An instance with NoWait is refused, but the holder learns of it and gives the lease back. For the next ten
// minutes no lease of that key lingers, so that the next try succeeds unless a caller is inside. Over backends other than memlock and redislock,
// only Lockers with WithLinger tell the holder: set it on all instances that share keys. Over redislock with WithInteropGap nothing lingers.
//
// Without this option, over memlock and redislock, a lease lingers for [DefaultLinger] if its key was requested again while the lease before it
// was being released. It does not linger for permits, or if another instance has waited within the last second. In an otherwise idle process,
// the timer takes about a millisecond. docs/tuning.md says more.
func WithLinger(d time.Duration) Option {
	return option(func(s *settings) {
		s.linger, s.adaptive = d, false
		if d < 0 {
			s.wrong("WithLinger(%v): want 0 (off) or more", d)
		}
	})
}

// WithInstance sets the name that the Locker's id begins with (default: the host's name, which in Kubernetes is the pod's): letters, digits,
// dots, dashes and underscores, at most 63. The backend, logs, errors and the debug page show the id of a holder or waiter. It ends with letters
// that no other process has, so that processes of one name differ.
func WithInstance(name string) Option {
	return option(func(s *settings) {
		s.instance = name
		if err := identity.Check(name); err != nil {
			s.wrong("WithInstance(%s): %v", nametext.Quote(name), err)
		}
	})
}

// WithOutage sets the policy while the backend is unreachable (default [FailClosed]). With LocalOnly, allow calls to wait for longer than one
// and a half T. During the first T, calls with NoWait fail with ErrUnavailable.
func WithOutage(o Outage) Option {
	return option(func(s *settings) {
		s.outage = o
		if o != FailClosed && o != LocalOnly {
			s.wrong("WithOutage(%d): want FailClosed or LocalOnly", o)
		}
	})
}

// WithDefaults sets options for all calls of the Locker.
func WithDefaults(opts ...CallOption) Option {
	return option(func(s *settings) { s.defaults = s.defaults.with(opts) })
}

// WithName sets options for all calls of one name. They override the defaults.
func WithName(name string, opts ...CallOption) Option {
	return option(func(s *settings) {
		if err := checkPart("name", name); err != nil {
			s.errs = append(s.errs, err)
		}
		before := s.names[name]
		s.names[name] = func(c callOptions) callOptions {
			if before != nil {
				c = before(c)
			}
			return c.with(opts)
		}
	})
}

// WithOwnedBackend makes Close also close the backend.
func WithOwnedBackend() Option { return option(func(s *settings) { s.owned = true }) }

// WithLogger sets the logger for lost locks, holds that are too long, failed releases and outages (default: none). Keys may be personal data.
// They are included, cut, only if the logger takes debug lines, or if [WithKeyRedaction] was given. The logger runs on a goroutine of its own,
// as tracers and meters do, so a slow one or a panic harms no lock (Stats.ReportPanics, ReportsDropped).
func WithLogger(l *slog.Logger) Option { return loggerOption{l} }

type loggerOption struct{ logger *slog.Logger }

func (o loggerOption) apply(s *settings) {
	s.logger = o.logger
	if o.logger == nil {
		s.wrong("WithLogger(nil): want a logger")
	}
}

// Logger is for config.Open, which gives the logger to the backend, too.
func (o loggerOption) Logger() *slog.Logger { return o.logger }

// WithTracerProvider makes two spans of every call, children of the caller's span (default: none). wllock.acquire lasts until the lock is
// acquired or refused. wllock.hold lasts from then to the end of the hold, and the function runs in it. Both have the time waited in each tier,
// the fence, and whether the call was a hand-off. A DoAll is one such pair, with the attributes wllock.names and wllock.key.count, and an event
// acquired for each key, in the common order. Spans end a moment after the call, and Close waits for that.
//
// A call waits at most 10 ms in all for its spans to start, and continues without a span that has not started. It waits for the second span
// with the lock held, and only if the first is sampled.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(s *settings) { s.tracers = p })
}

// WithSpanKeys puts the lock's full name, key included, on its spans as wllock.key, for a DoAll as wllock.keys (default: left out). Keys are not
// cut there, and may be personal data: use it only with [WithKeyRedaction], or if all readers of the traces may see the keys.
func WithSpanKeys() Option { return option(func(s *settings) { s.spanKeys = true }) }

// WithMeterProvider measures waits, holds, sheds, hand-offs and losses, per name (default: none).
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(s *settings) { s.meters = p })
}

// CallOption configures one call or, with WithName and WithDefaults, many. A call's own option overrides its name's, which overrides the
// defaults. Of two options for the same setting, the last one wins.
type CallOption func(callOptions) callOptions

// callOptions are passed by value, so that they stay off the heap.
type callOptions struct {
	wait        time.Duration // 0: until the context ends
	noWait      bool
	mode        distributed.Mode
	maxBatch    int32         // of a batch guard; Unlimited: any number
	lockTimeMax time.Duration // 0: no cap
	least       time.Duration // WithHoldAtLeast; 0: none
	onError     bool          // ReleaseOnError
	threshold   int
	fleet       int  // WithFleetThreshold; 0: none
	hopeless    bool // refuse at once what would wait too long
	ownLimit    bool // threshold was set by the call or its name
	sync        bool
	leads       bool  // the call is Lead's
	permits     int32 // Permits; 0: none
	fallback    fallback
	err         error // the first wrong option
}

// fallback is what WithFallback sets.
type fallback = func(ctx context.Context, err error) error

// deadline is when a call that began at asked has waited for long enough; zero: only its context says when.
func (c *callOptions) deadline(asked time.Time) time.Time {
	if c.wait == 0 {
		return time.Time{}
	}
	return asked.Add(c.wait)
}

func (c callOptions) with(opts []CallOption) callOptions {
	for i, o := range opts {
		if o == nil {
			c = c.wrong("call option %d of %d is nil", i+1, len(opts))
			continue
		}
		c = o(c)
	}
	return c
}

func (c callOptions) wrong(format string, args ...any) callOptions {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	return c
}

// WithWait sets how long the call may wait for the lock, in both tiers together. 0 (default): until its context ends.
func WithWait(d time.Duration) CallOption {
	return func(c callOptions) callOptions {
		if d < 0 {
			return c.wrong("WithWait(%v): want 0 (until the context ends) or more", d)
		}
		c.wait, c.noWait = d, false
		return c
	}
}

// NoWait acquires the lock at once or not at all: the call returns ErrHeld if the lock is taken. NoWait and WithWait are one setting. If an idle
// instance holds the lock (see [WithLinger]), that instance learns of the call, and the next try gets the lock.
func NoWait() CallOption {
	return func(c callOptions) callOptions {
		c.wait, c.noWait = 0, true
		return c
	}
}

// Shared requests a read lock: any number of shared holders, and no exclusive one beside them.
func Shared() CallOption {
	return func(c callOptions) callOptions {
		c.mode = distributed.Shared
		return c
	}
}

// WithLockTimeMax sets how long the function may hold the lock, from its start (default [DefaultLockTimeMax]). After that the function's context
// ends with ErrLockTimeMax, and the lease is no longer renewed. 0: no limit.
func WithLockTimeMax(d time.Duration) CallOption {
	return func(c callOptions) callOptions {
		if d < 0 {
			return c.wrong("WithLockTimeMax(%v): want 0 (no cap) or more", d)
		}
		c.lockTimeMax = d
		return c
	}
}

// WithCallThreshold sets the threshold of the call: see WithThreshold.
func WithCallThreshold(n int) CallOption { return threshold("WithCallThreshold", n) }

func threshold(option string, n int) CallOption {
	return func(c callOptions) callOptions {
		if err := checkThreshold(n); err != nil {
			return c.wrong("%s(%d): %v", option, n, err)
		}
		c.threshold, c.ownLimit = n, true
		return c
	}
}

// WithFleetThreshold sets how many instances may wait for the key, over all processes. The next instance to ask is refused with ErrQueueFull, in
// the distributed tier. That takes a round trip, and the answer also goes to all its callers that came meanwhile. An instance that waits, or
// holds the lock, is not refused: its other callers wait in the local queue, which has a threshold of its own. Unlimited (default): any number.
//
// Use it for many small processes, such as functions as a service. For a few large processes, WithThreshold alone bounds the queue, and refuses
// without a round trip. If instances set different values, each applies its own. An instance that died while it waited counts until its place
// comes up.
//
// Redis (one server, Sentinel, a cluster), the SQL databases and memory count the instances that wait. Over other backends, and over Redlock,
// each call returns an error that Is errors.ErrUnsupported. WithDefaults sets it for all names.
func WithFleetThreshold(n int) CallOption {
	return func(c callOptions) callOptions {
		if n < 1 && n != Unlimited {
			return c.wrong("WithFleetThreshold(%d): want 1 or more (NoWait waits behind none), or Unlimited", n)
		}
		c.fleet = max(n, 0)
		return c
	}
}

// WithShedHopeless refuses the call at once, before it queues, if its time will probably pass before it gets the lock. The time is WithWait or
// the deadline of its context, whichever is shorter. The error matches ErrQueueFull, in the local tier, and has a RetryAfter. So the caller
// learns at once what it would otherwise learn after the whole wait, and the callers behind it have one less before them.
//
// The estimate uses the recent turns of the name, how much they vary, and the callers in the queue. Under 1.5 to 3 times the load that the lock
// can serve, with waits of ten turns or more, at least 96% as many calls are served as without the option. For 100 calls that are refused at
// once, at most 10 others still wait in vain (15 if turns vary as much as an exponential distribution). Near the limit chance decides: some of
// the refused calls would have got the lock, and others would have waited in vain instead. No call is refused until some turns of the name have
// been measured. The option has no effect on calls without a limit to their wait, or with NoWait.
func WithShedHopeless() CallOption {
	return func(c callOptions) callOptions {
		c.hopeless = true
		return c
	}
}

// WithFallback runs f instead of the function when the lock is not acquired, with the reason. f runs with the caller's context, and holds
// nothing in either tier. The call returns f's error. Acquire ignores the option. nil: no fallback, for a call whose name or Locker has one.
func WithFallback(f func(ctx context.Context, err error) error) CallOption {
	return func(c callOptions) callOptions {
		c.fallback = f
		return c
	}
}

// SyncRelease makes the call return only after the backend has answered the release, or one T has passed. Use it in programs that end, or are
// frozen, after the call, such as functions as a service. There a release in the background would not be sent.
func SyncRelease() CallOption {
	return func(c callOptions) callOptions {
		c.sync = true
		return c
	}
}

var errThreshold = errors.New("want 0 (no caller waits) or more, or Unlimited")

func checkThreshold(n int) error {
	if n < Unlimited {
		return errThreshold
	}
	return nil
}
