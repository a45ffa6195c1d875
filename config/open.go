package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/redisopts"
)

// Open connects to the backend, asks it whether it can do its work, and returns a Locker that closes it when it is
// closed itself. ctx bounds the connecting only.
//
// Backends are memory://, which each call of Open makes anew, and whatever redislock.Open reads: one Redis server,
// a primary found by sentinels, a cluster. For others, and for options of redislock, see WithOpener.
//
// Options beat the settings of the Config. An unknown scheme is an *Error; a backend that does not answer, or refuses
// the credentials, is an error that Is wllock.ErrUnavailable.
func (c Config) Open(ctx context.Context, opts ...wllock.Option) (*wllock.Locker, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := c.target()
	if err != nil {
		return nil, err
	}
	openers, opts := c.openers(opts)
	open, known := openers[u.Scheme]
	if !known {
		return nil, &Error{Problems: []Problem{unsupported(u.Scheme, openers)}}
	}
	locker, err := c.connect(ctx, u, open, opts)
	if err != nil { // told by code that was given the password
		return nil, fmt.Errorf("wllock: opening %s: %w", c.Backend, scrub(err, secretsOf(u)))
	}
	return locker, nil
}

func (c Config) connect(ctx context.Context, u *url.URL, open opener, opts []wllock.Option) (*wllock.Locker, error) {
	backend, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(c.options(), opts, []wllock.Option{wllock.WithOwnedBackend()})
	locker, err := wllock.New(c.SystemName, backend, all...)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	if err := locker.Ping(ctx); err != nil {
		return nil, errors.Join(err, locker.Close(context.WithoutCancel(ctx))) // nobody holds a lock, so it does not wait
	}
	return locker, nil
}

// options are the settings as New takes them.
func (c Config) options() []wllock.Option {
	calls := []wllock.CallOption{wllock.WithLockTimeMax(c.LockTimeMax)}
	if c.Wait > 0 {
		calls = append(calls, wllock.WithWait(c.Wait))
	}
	opts := []wllock.Option{
		wllock.WithThreshold(c.SingleWaitThreshold.Default),
		wllock.WithLeaseTTL(c.LeaseTTL),
		wllock.WithMaxHandoffs(c.MaxHandoffs),
		wllock.WithMaxTenure(c.MaxTenure),
		wllock.WithLinger(c.Linger),
		wllock.WithDefaults(calls...),
		c.Outage.option(),
	}
	for name, n := range c.SingleWaitThreshold.Names {
		opts = append(opts, wllock.WithName(name, wllock.WithCallThreshold(n)))
	}
	return opts
}

// opener makes a backend of a URL, which holds the password.
type opener func(ctx context.Context, u *url.URL) (distributed.Backend, error)

// builtIn are the backends that need no opener of the application's.
func (c Config) builtIn() map[string]opener {
	openers := map[string]opener{"memory": openMemory}
	for _, scheme := range redisopts.Schemes() {
		openers[scheme] = c.openRedis
	}
	return openers
}

func openMemory(_ context.Context, u *url.URL) (distributed.Backend, error) {
	if u.Host != "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("memory:// takes no host, path or options")
	}
	return memlock.New(), nil
}

// openRedis leaves a password file to the client, which reads it again for each connection.
func (c Config) openRedis(_ context.Context, u *url.URL) (distributed.Backend, error) {
	var opts []redislock.Option
	if c.RedisPasswordFile != "" {
		opts = append(opts, redislock.WithPasswordFile(c.RedisPasswordFile))
	}
	return redislock.Open(u.String(), opts...)
}

// WithOpener lets Open make backends of further kinds, or those of a kind it knows in another way: URLs of this scheme
// are given to open, with their password. It is of use with Open only; New takes it and does nothing.
func WithOpener(scheme string, open func(ctx context.Context, u *url.URL) (distributed.Backend, error)) wllock.Option {
	return openerOption{Option: wllock.WithDefaults(), scheme: strings.ToLower(scheme), open: open}
}

// openerOption passes through the options of New as one that sets nothing, and is picked out here by its type.
type openerOption struct {
	wllock.Option
	scheme string
	open   opener
}

// openers splits those that the application passes off the options, and adds those that are built in.
func (c Config) openers(opts []wllock.Option) (map[string]opener, []wllock.Option) {
	openers := c.builtIn()
	var rest []wllock.Option
	for _, opt := range opts {
		if o, ok := opt.(openerOption); ok {
			openers[o.scheme] = o.open
		} else {
			rest = append(rest, opt)
		}
	}
	return openers, rest
}

func unsupported(scheme string, openers map[string]opener) Problem {
	supported := strings.Join(slices.Sorted(maps.Keys(openers)), "://, ") + "://"
	return Problem{
		Variable: "WLLOCK_BACKEND",
		Fault:    nametext.Quote(scheme) + " is not a kind of backend that this program can open",
		Allowed:  supported + ", and what the program passes to Open with config.WithOpener",
		Example:  "WLLOCK_BACKEND=memory://",
	}
}
