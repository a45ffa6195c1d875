package redislimit

import (
	"fmt"
	"strings"
)

const (
	// DefaultPrefix is what every key begins with.
	DefaultPrefix = "wllock:limit:"
	// maxPrefix keeps keys short: each identity has one or two, and Redis holds them all in memory.
	maxPrefix = 128
)

// Option configures a Limiter.
type Option func(*Limiter)

// WithPrefix sets what every key begins with (default "wllock:limit:"). Limiters with different prefixes share no quota:
// use your system's name, as in "wllock:shop:limit:", to which the Redis users of other systems have no right. It is 1 to 128
// printable ASCII characters, without spaces and braces.
func WithPrefix(prefix string) Option {
	if err := checkPrefix(prefix); err != nil {
		panic(err.Error())
	}
	return func(l *Limiter) { l.prefix = prefix }
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
