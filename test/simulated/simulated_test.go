package simulated

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // so the order of goroutines is mostly the same each time, and a bubble is faster
	goleak.VerifyTestMain(m)
}

// play plays one schedule in a bubble, and returns what is wrong with it.
func play(t *testing.T, seed uint64, s *seen, service, flaw string) (kind string, wrong []string) {
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, s, service, flaw)
		w.play()
	})
	return w.kind(), w.judge()
}

// schedules plays so many, and requires that they have come by all that they can come by.
func schedules(t *testing.T, n int, long bool) {
	s := newSeen()
	all := testseed.Each(t, n, func(seed uint64) {
		if kind, wrong := play(t, seed, s, "", ""); len(wrong) > 0 {
			t.Errorf("seed %d, %s:\n%s", seed, kind, strings.Join(wrong, "\n"))
		}
	})
	t.Logf("seen:\n%s", strings.Join(s.lines(), "\n"))
	if all {
		s.requires(t, long)
	}
}

// TestAnySchedule plays some schedules.
func TestAnySchedule(t *testing.T) { schedules(t, 150, false) }

// TestManySchedules plays thousands, or with WLLOCK_LONG=1 100,000.
func TestManySchedules(t *testing.T) {
	testscope.Long(t, "plays thousands of schedules")
	schedules(t, testscope.Scale(5000, 100_000), true)
}
