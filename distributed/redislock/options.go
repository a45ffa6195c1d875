package redislock

import (
	"errors"
	"log/slog"
	"time"
)

// Option changes how a Backend works.
type Option func(*settings)

type settings struct {
	log          *slog.Logger
	gap          time.Duration
	username     string
	passwordFile string
}

func newSettings(opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&s)
	}
	if s.log == nil {
		return s, errors.New("redislock: WithLogger(nil): want a logger")
	}
	return s, nil
}

// WithLogger says where warnings go: a maxmemory-policy that can evict locks, a lost subscription. The default is
// nowhere; nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithInteropGap leaves a released lock free for d, rounded up to milliseconds, before the next in wllock's queue gets it.
// Hand-overs in the queue never leave the key free, so a client of the common convention (SET key unique NX PX) that
// polls for it may starve beside a busy queue; with a gap longer than its polling it gets its share. The price is d
// per hand-over. Default 0: off. All processes that share keys should use the same.
func WithInteropGap(d time.Duration) Option {
	return func(s *settings) { s.gap = max(d+time.Millisecond-1, 0).Truncate(time.Millisecond) }
}

// WithUsername is the ACL user to connect as; it goes before the one in a URL or client.
func WithUsername(name string) Option { return func(s *settings) { s.username = name } }

// WithPasswordFile names a file with the password; white space at its end does not count. It is read for every new
// connection, so a password can be changed while the program runs. It goes before the one in a URL or client.
func WithPasswordFile(path string) Option { return func(s *settings) { s.passwordFile = path } }
