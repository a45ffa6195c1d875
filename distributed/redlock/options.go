package redlock

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/openurl"
)

// Option changes how a Backend works.
type Option func(*settings)

type settings struct {
	log    *slog.Logger
	conn   conn.Config
	fences bool
	name   string // of this process

	longest time.Duration
	wrong   bool // it is not positive
}

func newSettings(opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler), conn: conn.Config{PrefixOf: spaceOf, Pipelines: lanes}}
	if err := openurl.Apply("redlock", &s, opts); err != nil {
		return s, err
	}
	if s.name != "" {
		if err := identity.Check(s.name); err != nil {
			return s, fmt.Errorf("redlock: WithInstance(%q): %w", s.name, err)
		}
	}
	s.conn.ClientName = identity.Process(s.name)
	if s.log == nil {
		return s, errors.New("redlock: WithLogger(nil): want a logger")
	}
	if s.wrong {
		return s, errors.New("redlock: WithLongestTTL: want a positive TTL")
	}
	return s, nil
}

// WithLogger sets the logger for warnings: a server that fails, or was restarted (default: none). Nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithQuorumFences gives leases fencing tokens (default: none). This costs one more exchange with the servers per lease, and per 1000 callers
// that the lease serves. The fences grow as long as no majority of the servers loses its data.
func WithQuorumFences() Option { return func(s *settings) { s.fences = true } }

// WithLongestTTL names the longest lease TTL that any instance uses on these servers (default: its own, or the longest that the servers report).
// It is needed only if instances use different TTLs: a restarted server counts again when the longest TTL has passed, and would not know of
// longer ones. A TTL that is not positive is refused.
func WithLongestTTL(ttl time.Duration) Option {
	return func(s *settings) { s.longest, s.wrong = ttl, s.wrong || ttl <= 0 }
}

// WithInstance sets the name that this process has in CLIENT LIST (default: the host's name). The letters of wllock.WithInstance follow it. A
// client that has a name of its own keeps it.
func WithInstance(name string) Option { return func(s *settings) { s.name = name } }

// WithUsername sets the ACL user to connect as. It overrides the user in a URL or client.
func WithUsername(name string) Option { return func(s *settings) { s.conn.Username = name } }

// WithPasswordFile names a file with the password, one line of UTF-8. White space at its end and a byte order mark are not part of the password.
// The file is read for every new connection, so the password can be changed while the program runs. It overrides the password in a URL or
// client.
func WithPasswordFile(path string) Option { return func(s *settings) { s.conn.PasswordFile = path } }
