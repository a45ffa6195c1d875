package redistest

import (
	"testing"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// Clock is the wall clock of a server.
type Clock = testproc.Clock

// StartWithClock is Start for a server whose time the test sets: it begins at now, and stands still until it is set. It needs
// Linux and gcc.
func StartWithClock(t testing.TB, now time.Time, args ...string) (*Server, *Clock) {
	t.Helper()
	c := testproc.NewClock(t)
	c.Set(now)
	return start(t, c.Env, append(inMemory(), args...)), c
}
