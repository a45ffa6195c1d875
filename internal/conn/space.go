package conn

import (
	"strconv"
	"strings"
)

// HelperPrefix starts the name of every helper key and channel, and the value of every lock.
const HelperPrefix = "wllock:"

// SystemOf is the system that a Redis key belongs to: what stands before its first colon. A key that has none there, or a brace, belongs
// to the system "", which no Locker can have. It follows from the key alone, because all who lock one key must find the same helper keys.
func SystemOf(key string) string {
	system, _, colon := strings.Cut(key, ":")
	if !colon || strings.ContainsAny(system, "{}") {
		return ""
	}
	return system
}

// SpaceOf starts the names of all helper keys and channels of a system: one ACL pattern keeps it apart from the others. No brace is in it, so the
// first one of a helper key is that of its hash tag.
func SpaceOf(system string) string { return HelperPrefix + system + ":" }

// IsHelper reports that a Redis key is, or could be, a helper key, so that no lock may have it.
func IsHelper(key string) bool { return strings.HasPrefix(key, HelperPrefix) }

// SystemIn is the system of a helper key or channel, or "" if the name is none.
func SystemIn(name string) string {
	rest, _ := strings.CutPrefix(name, HelperPrefix)
	return SystemOf(rest)
}

// FormatIn returns the number of another format that a lock's value names, "wllock3:...". It is 0 if the value names none.
func FormatIn(value string) int {
	rest, ours := strings.CutPrefix(value, "wllock")
	digits, _, cut := strings.Cut(rest, ":")
	n, err := strconv.Atoi(digits)
	if !ours || !cut || err != nil {
		return 0
	}
	return n
}
