package config

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/redisopts"
)

// KeyPattern makes a Redis key from the three parts of a lock's name: {system}, {name} and {key} stand for them. The zero
// KeyPattern is that of the full name.
type KeyPattern string

// fullName is the pattern of what wllock names a key by itself.
const fullName KeyPattern = "{system}:{name}:{key}"

// Key returns the Redis key of a lock with this full name, system:name:key.
func (p KeyPattern) Key(full string) string {
	parts := strings.SplitN(full, ":", 3) // neither of the first two has a colon
	if p == "" || len(parts) < 3 {
		return full
	}
	return strings.NewReplacer("{system}", parts[0], "{name}", parts[1], "{key}", parts[2]).Replace(string(p))
}

// helperKeys starts the helper keys of all locks in Redis, which no lock may be among.
const helperKeys = "wllock:"

// placeholder matches what stands, or may have been meant to stand, for a part of the name.
var placeholder = regexp.MustCompile(`\{[a-z]*\}|(?i)\{(system|name|key)\}`)

func (p KeyPattern) fault() string {
	for _, used := range placeholder.FindAllString(string(p), -1) {
		if !strings.Contains(string(fullName), used) {
			return "has " + nametext.Quote(used) + ", which stands for nothing"
		}
	}
	if !strings.Contains(string(p), "{key}") {
		return "has no {key}: all locks would be one"
	}
	if strings.HasPrefix(string(p), helperKeys) {
		return "begins with " + helperKeys + ", as helper keys do"
	}
	return ""
}

// custom reports that keys are not the full names.
func (p KeyPattern) custom() bool { return p != "" && p != fullName }

// options returns the options of redislock that set the key, and have it probed if all keys of the system begin alike.
func (p KeyPattern) options(system string) []redislock.Option {
	if !p.custom() {
		return []redislock.Option{redislock.WithSystem(system)}
	}
	opts := []redislock.Option{redislock.WithKey(p.Key)}
	before, _, _ := strings.Cut(strings.ReplaceAll(string(p), "{system}", system), "{")
	if start, colon := strings.CutSuffix(before, ":"); colon && start != "" {
		opts = append(opts, redislock.WithSystem(start))
	}
	return opts
}

func (c Config) redisKeyFault() string {
	if !c.RedisKey.custom() {
		return ""
	}
	if wrong := c.RedisKey.fault(); wrong != "" {
		return wrong
	}
	return c.redisFault()
}

func (c Config) interopGapFault() string {
	if wrong := atLeast(c.RedisInteropGap, 0); wrong != "" || c.RedisInteropGap == 0 {
		return wrong
	}
	return c.redisFault()
}

func (c Config) replicaAcksFault() string {
	if wrong := atLeast(c.RedisReplicaAcks, 0); wrong != "" || c.RedisReplicaAcks == 0 {
		return wrong
	}
	return c.redisFault()
}

func (c Config) acksWithinFault() string {
	switch wrong := atLeast(c.RedisAcksWithin, time.Millisecond); {
	case wrong != "":
		return wrong
	case c.RedisReplicaAcks > 0 && c.RedisAcksWithin > c.LeaseTTL/2:
		return fmt.Sprintf("%v is more than half of WLLOCK_LEASE_TTL, %v", c.RedisAcksWithin, c.LeaseTTL)
	}
	return ""
}

// redisFault returns why the backend cannot have what only redislock has, or "".
func (c Config) redisFault() string {
	u, err := c.Backend.Parse()
	if err != nil { // a problem of its own
		return ""
	}
	switch s, ok := redisopts.SchemeOf(u.Scheme); {
	case !ok:
		return "is set, but WLLOCK_BACKEND is not Redis"
	case s.Kind == redisopts.KindRedlock:
		return "is set, but WLLOCK_BACKEND is Redlock"
	}
	return ""
}
