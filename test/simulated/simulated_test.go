package simulated

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

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

// TestAnySchedule plays some hundred schedules.
func TestAnySchedule(t *testing.T) {
	s := newSeen()
	testseed.Each(t, 300, func(seed uint64) {
		if kind, wrong := play(t, seed, s, "", ""); len(wrong) > 0 {
			t.Errorf("seed %d, %s:\n%s", seed, kind, strings.Join(wrong, "\n"))
		}
	})
	t.Logf("seen:\n%s", strings.Join(s.lines(), "\n"))
}
