package etcdlock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/openurl"
)

// Option changes how a Backend works.
type Option func(*settings)

type settings struct {
	log    *slog.Logger
	prefix string // of all keys, without a slash at its end

	// for tests
	patience time.Duration // with an answer, in place of a sixth of the TTL; 0: that
}

// DefaultPrefix is what all keys begin with, unless WithPrefix or a URL names another.
const DefaultPrefix = "/wllock"

// WithLogger sets the logger for warnings: an etcd lease that has expired, watches that are refused (default: none). Nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithPrefix sets what all keys begin with, before a slash (default [DefaultPrefix]). The path of a URL overrides it.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

func newSettings(opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler), prefix: DefaultPrefix}
	if err := openurl.Apply("etcdlock", &s, opts); err != nil {
		return s, err
	}
	s.prefix = strings.TrimRight(s.prefix, "/")
	switch {
	case s.log == nil:
		return s, errors.New("etcdlock: WithLogger(nil): want a logger")
	case s.prefix == "":
		return s, fmt.Errorf("etcdlock: an empty prefix: want one that no other program uses, such as %q", DefaultPrefix)
	}
	return s, nil
}
