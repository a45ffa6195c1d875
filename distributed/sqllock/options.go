package sqllock

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Option changes how a Backend works. Migrate takes the same options.
type Option func(*settings)

type settings struct {
	log      *slog.Logger
	prefix   string
	schema   string
	notifier Notifier
	parallel int
	owned    bool
	reapAge  time.Duration
	is       *traits
}

// reapTick is how often, on average, a process asks whether unused rows are to be looked for.
func (s *settings) reapTick() time.Duration { return s.reapAge / reapTicks }

const (
	// DefaultTable is what the names of the tables begin with, unless WithTable sets another prefix.
	DefaultTable = "wllock"
	// DefaultParallel is the maximum number of calls of one Backend that use a connection at a time, besides its background tasks.
	DefaultParallel = 6
	// BackgroundConnections is the maximum number of connections that the background tasks of a Backend use: one for renewals, one for looks and
	// heartbeats, and two for releases. With these defaults a server with 100 connections has room for some ten processes.
	BackgroundConnections = 4
	// DefaultReapAge is how long the row of an unused lock stays.
	DefaultReapAge = 24 * time.Hour

	// reapTicks is how often in that time unused rows are looked for.
	reapTicks = 24
	// shortestReapAge makes a tick longer than any statement.
	shortestReapAge = time.Hour
)

// WithLogger sets the logger for warnings (default: none). Nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithTable sets what the names of the tables begin with (default [DefaultTable]): wllock_locks, wllock_waiters, wllock_meta and
// wllock_runs.
func WithTable(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithSchema sets where the tables are (default: where the connection looks first): a schema of PostgreSQL, a database of MySQL, an attached
// database of SQLite. The name is used literally: on PostgreSQL Shop is not shop. Without the option, the Backend asks a session of the pool
// once, before the first grant.
func WithSchema(name string) Option { return func(s *settings) { s.schema = name } }

// WithNotifier makes hand-overs pushes instead of polls (default: none). It works on PostgreSQL only: see sqllock/postgres.
func WithNotifier(n Notifier) Option { return func(s *settings) { s.notifier = n } }

// WithParallel sets how many calls use a connection at a time (default [DefaultParallel]). Background tasks use up to [BackgroundConnections]
// more.
func WithParallel(n int) Option { return func(s *settings) { s.parallel = n } }

// WithOwnedDB makes Close also close the database (default: the application closes it).
func WithOwnedDB() Option { return func(s *settings) { s.owned = true } }

// WithReapAge sets how long the row of an unused lock stays (default [DefaultReapAge], at least an hour). If a database's clock is set back by
// less than that, no fence is given out twice.
func WithReapAge(d time.Duration) Option { return func(s *settings) { s.reapAge = d } }

var (
	// namePattern is what needs no quotes in any of the databases, and leaves room for what is added to it.
	namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}$`)
	// schemaPattern is what can be quoted in all of them.
	schemaPattern = regexp.MustCompile(`^[\pL\pN_ -]{1,63}$`)
)

const schemaWanted = "1 to 63 letters, digits, underscores, hyphens and spaces"

func newSettings(d Dialect, opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler), prefix: DefaultTable, parallel: DefaultParallel, reapAge: DefaultReapAge, is: dialects[d]}
	for _, o := range opts {
		if o == nil {
			return s, errors.New("sqllock: an option is nil")
		}
		o(&s)
	}
	switch {
	case s.is == nil:
		return s, fmt.Errorf("sqllock: %v is no dialect: want MySQL, PostgreSQL or SQLite", d)
	case s.log == nil:
		return s, errors.New("sqllock: WithLogger(nil): want a logger")
	case !namePattern.MatchString(s.prefix):
		return s, fmt.Errorf("sqllock: WithTable(%q): want letters, digits and underscores, 48 at most", s.prefix)
	case s.schema != "" && !schemaPattern.MatchString(s.schema):
		return s, fmt.Errorf("sqllock: WithSchema(%q): want %s", s.schema, schemaWanted)
	case s.parallel < 1:
		return s, fmt.Errorf("sqllock: WithParallel(%d): want at least 1", s.parallel)
	case s.reapAge < shortestReapAge:
		return s, fmt.Errorf("sqllock: WithReapAge(%v): want at least %v", s.reapAge, shortestReapAge)
	case s.notifier != nil && !s.is.atOnce:
		return s, fmt.Errorf("sqllock: WithNotifier: %v has no notifications", d)
	}
	return s, nil
}

// table returns the full name of a table. That of the schema is quoted, for it may be a word of SQL, as order and user are.
func (s *settings) table(name string) string {
	full := s.prefix + "_" + name
	if s.schema != "" {
		full = s.is.quote + s.schema + s.is.quote + "." + full
	}
	return full
}
