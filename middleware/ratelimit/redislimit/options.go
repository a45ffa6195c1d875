package redislimit

import (
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/metric"
)

const (
	// DefaultPrefix is what every key begins with.
	DefaultPrefix = "wllock:limit:"
	// maxPrefix keeps keys short: each identity has one or two, and Redis holds them all in memory.
	maxPrefix = 128
	// scope names the library as the source of its measurements.
	scope = "github.com/wllock/wllock/middleware/ratelimit/redislimit"
)

// Option configures a Limiter.
type Option func(*Limiter)

// WithPrefix sets what every key begins with (default "wllock:limit:"): 1 to 128 printable ASCII characters, without spaces and braces. Limiters
// with different prefixes share no quota. Use your system's name, as in "wllock:shop:limit:", to which the Redis users of other systems have no
// right.
func WithPrefix(prefix string) Option {
	if err := checkPrefix(prefix); err != nil {
		panic(err.Error())
	}
	return func(l *Limiter) { l.prefix = prefix }
}

// WithLogger sets the logger (default: none). It gets a line when Redis begins to refuse, or is away, and one when it counts again. It runs on
// the goroutine of a request.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("redislimit: WithLogger(nil): want a logger")
	}
	return func(l *Limiter) { l.failures.log = log }
}

// WithMeterProvider counts the requests that Redis did not count, as wllock.limit.failures (default: none). It panics if the provider refuses to
// create the counter.
func WithMeterProvider(p metric.MeterProvider) Option {
	if p == nil {
		panic("redislimit: WithMeterProvider(nil): want a provider")
	}
	counter, err := p.Meter(scope).Int64Counter("wllock.limit.failures", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that a rate limit could not count, by outcome: away, refused"))
	if err != nil {
		panic("redislimit: WithMeterProvider: " + err.Error())
	}
	return func(l *Limiter) { l.failures.counter = counter }
}

// checkPrefix refuses braces, too, because those behind the prefix decide on the node of a cluster.
func checkPrefix(prefix string) error {
	if len(prefix) == 0 || len(prefix) > maxPrefix {
		return fmt.Errorf("redislimit: WithPrefix: the prefix has %d bytes, want 1 to %d", len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		if c := prefix[i]; c <= ' ' || c > '~' || strings.IndexByte("{}", c) >= 0 {
			return fmt.Errorf("redislimit: WithPrefix(%q): want printable ASCII without spaces and braces, not %q at byte %d", prefix, c, i)
		}
	}
	return nil
}
