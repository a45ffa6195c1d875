package redislock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// stalls measures, while tests run, how late the machine runs a goroutine whose time has come. Bounds on what is real time
// allow for it, because a busy machine is no fault of the locks; on an idle one they stay as tight as they are.
var stalls stallMeter

type stallMeter struct {
	mu   sync.Mutex
	late []stall // guarded by mu; those that count, in order
}

type stall struct {
	end time.Time
	by  time.Duration
}

// leastStall is what a scheduler may take on an idle machine.
const leastStall = 2 * time.Millisecond

// run measures for ever.
func (m *stallMeter) run() {
	const pause = time.Millisecond
	for {
		asleep := time.Now()
		time.Sleep(pause)
		end := time.Now()
		if by := end.Sub(asleep) - pause; by >= leastStall {
			m.mu.Lock()
			m.late = append(m.late, stall{end, by})
			m.mu.Unlock()
		}
	}
}

// since returns all the time since then for which the machine stood still, and the longest stretch of it.
func (m *stallMeter) since(start time.Time) (sum, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.late) - 1; i >= 0 && m.late[i].end.After(start); i-- {
		by := min(m.late[i].by, m.late[i].end.Sub(start))
		sum, longest = sum+by, max(longest, by)
	}
	return sum, longest
}

// needsQuiet skips the rest of a test that has failed on a machine that stood still for H of late, after which a lease of
// this TTL, or a place, may be lost.
func needsQuiet(t testing.TB, ttl time.Duration) {
	t.Helper()
	needsQuieter(t, distributed.HeartbeatInterval(ttl))
}

// needsQuieter is needsQuiet for a test with a smaller margin.
func needsQuieter(t testing.TB, most time.Duration) {
	t.Helper()
	if _, longest := stalls.since(time.Now().Add(-patience)); longest > most {
		t.Skipf("too busy a machine for these bounds in time: it stood still for %v", longest)
	}
}

// noError is require.NoError for a step that fails if a machine stands still for long: see needsQuiet.
func noError(t testing.TB, err error, ttl time.Duration) {
	t.Helper()
	if err != nil {
		needsQuiet(t, ttl)
	}
	require.NoError(t, err)
}

// ttlOf is T of a lease or a place of ours.
func ttlOf(x any) time.Duration {
	if a := attemptBehind(x); a != nil {
		return a.TTL
	}
	return testTTL
}
