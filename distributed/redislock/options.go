package redislock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/openurl"
)

// Option changes how a Backend works.
type Option func(*settings)

type settings struct {
	log    *slog.Logger
	gap    time.Duration
	conn   conn.Config
	starts []string // what the keys of each system begin with
	key    func(full string) string
	noKey  bool   // WithKey was given nil
	name   string // of this process
	acks   error  // what is wrong with those that were asked for
}

// pipelines is how many exchanges of several calls may be under way with one server: of background tasks, heartbeats and
// renewals (4), a probe and an echo.
const pipelines = maxWorkers + maxHeartbeats + 4 + 1 + 1

func newSettings(opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler), conn: conn.Config{PrefixOf: spaceOf, Pipelines: pipelines}}
	if err := openurl.Apply("redislock", &s, opts); err != nil {
		return s, err
	}
	if s.name != "" {
		if err := identity.Check(s.name); err != nil {
			return s, fmt.Errorf("redislock: WithInstance(%q): %w", s.name, err)
		}
	}
	s.conn.ClientName = identity.Process(s.name)
	if s.log == nil {
		return s, errors.New("redislock: WithLogger(nil): want a logger")
	}
	if s.noKey {
		return s, errors.New("redislock: WithKey(nil): want a function")
	}
	if s.acks != nil {
		return s, s.acks
	}
	if slices.Contains(s.starts, ":") {
		return s, errors.New("redislock: WithSystem(\"\"): want a name")
	}
	for _, start := range s.starts {
		if conn.IsHelper(start) {
			return s, fmt.Errorf("redislock: WithSystem(%q): its locks would be among the helper keys of others", strings.TrimSuffix(start, ":"))
		}
	}
	return s, nil
}

// WithLogger sets the logger for warnings: a maxmemory-policy that can evict locks, a lost subscription (default: none).
// Nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithInteropGap leaves a released lock free for d, rounded up to milliseconds, before the next wllock instance gets it: the head of the queue,
// or a caller that comes later. Default 0: off. Without a gap, hand-overs in the queue never leave the key free. So a client of the common
// convention (SET key unique NX PX) that polls for the key may starve beside a busy queue. A gap of a third of its polling interval gives it a
// share. docs/migrating.md has the figures. Within d of a release, a call with NoWait gets ErrHeld. Nothing lingers (wllock.WithLinger), because
// such a client cannot say that it wants the lock. All processes that share keys should use the same d.
func WithInteropGap(d time.Duration) Option {
	return func(s *settings) { s.gap = max(d+time.Millisecond-1, 0).Truncate(time.Millisecond) }
}

// WithKey sets the Redis key of each lock: f gets the lock's full name, system:name:key, and returns the key (default: the full name). So wllock
// can lock what other libraries call "my-lock" or "orders:42", and services can migrate to it one at a time:
//
//	redislock.WithKey(func(full string) string { return strings.TrimPrefix(full, "shop:") }) // shop:orders:42 is orders:42
//
// f is called for every Enter, from any goroutine. It must always return the same key for a name, in all processes, so it must have no state. It
// must also be quick. An empty key is refused, and so is a key that begins with "wllock:", as helper keys do (distributed.ErrInvalidKey).
//
// Helper keys are named after the Redis key, in the same slot of a cluster. For them, and in the ACL rules, the part of that key before its
// first colon takes the place of the system. For "orders:42" the rules are ~orders:*, ~wllock:orders:* and &wllock:orders:*, and
// WithSystem("orders") makes Ping try them. A key without a colon has ~wllock::* and &wllock::*.
//
// Give each name a key of its own. Names that share a key exclude each other as two processes do, each with a local queue of its own, and a
// guard of one inside a guard of the other waits for itself.
func WithKey(f func(full string) string) Option {
	return func(s *settings) { s.key, s.noKey = f, f == nil }
}

// WithInstance sets the name that this process has in CLIENT LIST (default: the host's name). The letters of wllock.WithInstance follow it. A
// client that has a name of its own keeps it.
func WithInstance(name string) Option { return func(s *settings) { s.name = name } }

// WithSystem makes Ping, and the first use, also try the keys and the channel of this system (default: none). Without it, the first lock of each
// system tries its helper keys and channel, and each lock notices a user without the ACL rule ~system:*. For several systems, give the option
// several times.
func WithSystem(name string) Option {
	return func(s *settings) { s.starts = append(s.starts, name+":") }
}

// WithUsername sets the ACL user to connect as. It overrides the user in a URL or client.
func WithUsername(name string) Option { return func(s *settings) { s.conn.Username = name } }

// WithPasswordFile names a file with the password, one line of UTF-8. White space at its end and a byte order mark are not part of the password.
// The file is read for every new connection, so the password can be changed while the program runs. It overrides the password in a URL or
// client.
func WithPasswordFile(path string) Option { return func(s *settings) { s.conn.PasswordFile = path } }

// mostAckTime bounds the wait for replicas. It is longer than any lock should take.
const mostAckTime = time.Minute

// WithReplicaAcks gives a new lease to its caller only when n replicas have acknowledged it, which may take timeout, in milliseconds rounded up
// (default: off). It reduces what a failover loses, and does not rule that out: a replica that lacks the lease may still be promoted, as Redis'
// documentation of WAIT says. So check the fence as without it.
//
// If too few acknowledge in time, the lease is released, and its caller gets an error that Is distributed.ErrRefused and ErrUnavailable. The lock
// is free then, or the next waiter's. For a second no caller of this process queues on that server: it gets the same error. So no caller
// waits in a queue whose locks all come to nothing. A call with NoWait, and one that finds the lock free, tries it.
//
// Each lease costs one more script and a WAIT, which leases of one moment share, over connections of their own. A lease that another process hands
// over is acknowledged likewise before its caller gets it. So is one that is detached (distributed.Transferer). Renewals are not, because what
// they would lose makes no lock free at once. A lease TTL has to be about 1.1 timeouts at least, or Enter refuses it.
//
// The user needs the rule +wait. Ping tells of too few replicas. An n below 1 is refused, and so is a timeout that is not positive, or above a
// minute. Redlock has no such option: its servers are independent, and a majority of them is what keeps a lease.
func WithReplicaAcks(n int, timeout time.Duration) Option {
	return func(s *settings) {
		s.conn.Acks, s.acks = conn.Acks{Replicas: n, Within: (timeout + time.Millisecond - 1).Truncate(time.Millisecond)}, nil
		switch {
		case n < 1:
			s.acks = fmt.Errorf("redislock: WithReplicaAcks(%d, %v): want 1 replica or more", n, timeout)
		case timeout <= 0 || timeout > mostAckTime:
			s.acks = fmt.Errorf("redislock: WithReplicaAcks(%d, %v): want a timeout above 0s, at most %v", n, timeout, mostAckTime)
		}
	}
}
