package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
)

// Open connects to the backend, checks that it works, and returns a Locker. Closing the Locker closes the backend. ctx bounds the connection
// attempt only.
//
// The backends are memory://, which is new for each call of Open, those of redislock.Open (one Redis server, a primary found through sentinels,
// a cluster), and those of redlock.Open (a majority of independent Redis servers). For others, and for options of these packages, see
// [Config.WithOpener].
//
// Options override the settings of the Config. The backends above also get the logger of wllock.WithLogger. An unknown scheme is in the *Error
// with everything else that is wrong. If a backend does not respond, or refuses the credentials, the error Is wllock.ErrUnavailable.
func (c Config) Open(ctx context.Context, opts ...wllock.Option) (*wllock.Locker, error) {
	u, open, err := c.opener(loggerOf(opts))
	if err != nil {
		return nil, err
	}
	locker, err := c.connect(ctx, u, open, opts)
	if err != nil { // from code that got the password
		return nil, fmt.Errorf("wllock: opening %s: %w", c.Backend, scrub(err, secretsOf(u)))
	}
	return locker, nil
}

// OpenBackend returns only the backend, for tools that inspect locks: see distributed.InspectorOf. Unlike Open it does not check that the
// backend works. The caller closes it.
func (c Config) OpenBackend(ctx context.Context) (distributed.Backend, error) {
	u, open, err := c.opener(nil)
	if err != nil {
		return nil, err
	}
	backend, err := open(ctx, u)
	if err == nil && backend == nil {
		err = errNoBackend
	}
	if err != nil {
		return nil, fmt.Errorf("wllock: opening %s: %w", c.Backend, scrub(err, secretsOf(u)))
	}
	return backend, nil
}

var errNoBackend = errors.New("the opener returned no backend")

// opener checks the settings, and returns what opens the backend, with the URL for it.
func (c Config) opener(log *slog.Logger) (*url.URL, Opener, error) {
	wrong := c.problems()
	var open Opener
	if u, err := c.Backend.Parse(); err == nil {
		openers := c.allOpeners(log)
		if open = openers[u.Scheme]; open == nil {
			wrong = append(wrong, unsupported(u.Scheme, openers))
		}
	}
	if len(wrong) > 0 {
		return nil, nil, &Error{Problems: wrong}
	}
	u, err := c.target()
	return u, open, err
}

func (c Config) connect(ctx context.Context, u *url.URL, open Opener, opts []wllock.Option) (*wllock.Locker, error) {
	backend, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	if backend == nil {
		return nil, errNoBackend
	}
	all := slices.Concat(c.options(), opts, []wllock.Option{wllock.WithOwnedBackend()})
	redact, err := c.KeyRedaction()
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	if redact != nil {
		all = slices.Insert(all, 0, wllock.WithKeyRedaction(redact)) // an option given to Open is a later one
	}
	locker, err := wllock.New(c.SystemName, backend, all...)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	if err := locker.Ping(ctx); err != nil {
		_ = locker.Close(ctx) // which says no more than err
		return nil, err
	}
	return locker, nil
}

// options returns the settings as options of New.
func (c Config) options() []wllock.Option {
	calls := []wllock.CallOption{wllock.WithLockTimeMax(c.LockTimeMax)}
	if c.Wait > 0 {
		calls = append(calls, wllock.WithWait(c.Wait))
	}
	if c.FleetThreshold > 0 {
		calls = append(calls, wllock.WithFleetThreshold(c.FleetThreshold))
	}
	opts := []wllock.Option{
		wllock.WithThreshold(c.SingleWaitThreshold.Default),
		wllock.WithLeaseTTL(c.LeaseTTL),
		wllock.WithMaxHandoffs(c.MaxHandoffs),
		wllock.WithMaxTenure(c.MaxTenure),
		wllock.WithDefaults(calls...),
		c.Outage.option(),
	}
	if c.Linger != wllock.DefaultLinger {
		opts = append(opts, wllock.WithLinger(c.Linger))
	}
	if c.LongestTTL > 0 {
		opts = append(opts, wllock.WithLongestTTL(c.LongestTTL))
	}
	if c.Instance != "" {
		opts = append(opts, wllock.WithInstance(c.Instance))
	}
	for name, n := range c.SingleWaitThreshold.Names {
		opts = append(opts, wllock.WithName(name, wllock.WithCallThreshold(n)))
	}
	return opts
}

// Opener makes a backend from a URL, which contains the password.
type Opener func(ctx context.Context, u *url.URL) (distributed.Backend, error)

// WithOpener returns a copy of c whose Open calls open for URLs of this scheme: to add a backend, or to replace a built-in one. The last opener
// given for a scheme applies. The opener for postgres opens postgresql URLs as well. WithOpener panics if open is nil.
func (c Config) WithOpener(scheme string, open Opener) Config {
	if open == nil {
		panic(fmt.Sprintf("config: WithOpener(%q, nil): want a function", scheme))
	}
	c.openers = maps.Clone(c.openers)
	if c.openers == nil {
		c.openers = make(map[string]Opener)
	}
	c.openers[strings.ToLower(scheme)] = open
	return c
}

// loggerOf returns the logger that opts give the Locker, or nil.
func loggerOf(opts []wllock.Option) (log *slog.Logger) {
	for _, o := range opts {
		if o, ok := o.(interface{ Logger() *slog.Logger }); ok { // of wllock.WithLogger
			log = o.Logger()
		}
	}
	return log
}

// allOpeners returns the built-in openers, whose backends log to log, and those of WithOpener, by scheme.
func (c Config) allOpeners(log *slog.Logger) map[string]Opener {
	openers := map[string]Opener{"memory": openMemory}
	for _, scheme := range redisopts.Schemes() {
		openers[scheme] = c.redisOpener(log)
		if s, _ := redisopts.SchemeOf(scheme); s.Kind == redisopts.KindRedlock {
			openers[scheme] = c.redlockOpener(log)
		}
	}
	maps.Copy(openers, c.openers)
	for name, other := range otherNames {
		if open := openers[other]; open != nil && openers[name] == nil {
			openers[name] = open
		}
	}
	return openers
}

func openMemory(_ context.Context, u *url.URL) (distributed.Backend, error) {
	if u.Host != "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("memory:// takes no host, path or options")
	}
	return memlock.New(), nil
}

func (c Config) redisOpener(log *slog.Logger) Opener {
	opts := redisOptions(c, log, redislock.WithPasswordFile, redislock.WithInstance, redislock.WithLogger)
	opts = append(append(opts, c.RedisKey.options(c.SystemName)...), redislock.WithInteropGap(c.RedisInteropGap))
	if c.RedisReplicaAcks > 0 {
		opts = append(opts, redislock.WithReplicaAcks(c.RedisReplicaAcks, c.RedisAcksWithin))
	}
	return openurl.Opener(redislock.Open, opts)
}

func (c Config) redlockOpener(log *slog.Logger) Opener {
	return openurl.Opener(redlock.Open, redisOptions(c, log, redlock.WithPasswordFile, redlock.WithInstance, redlock.WithLogger))
}

// redisOptions returns the options that both packages have. The password file is passed on, because it is read again for each connection.
func redisOptions[O any](c Config, log *slog.Logger, file, instance func(string) O, logger func(*slog.Logger) O) (opts []O) {
	if c.RedisPasswordFile != "" {
		opts = append(opts, file(c.RedisPasswordFile))
	}
	if c.Instance != "" {
		opts = append(opts, instance(c.Instance))
	}
	if log != nil {
		opts = append(opts, logger(log))
	}
	return opts
}
