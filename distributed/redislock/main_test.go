package redislock

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	// After many failed dials go-redis dials once a second in the background: this ends within a second of Close.
	go stalls.run()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/wllock/wllock/distributed/redislock.(*stallMeter).run"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

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

// needsQuieter skips the rest of a test that has failed on a machine that stood still of late for longer than the test can bear.
func needsQuieter(t testing.TB, most time.Duration) {
	t.Helper()
	if _, longest := stalls.since(time.Now().Add(-patience)); longest > most {
		t.Skipf("too busy a machine for these bounds in time: it stood still for %v", longest)
	}
}
