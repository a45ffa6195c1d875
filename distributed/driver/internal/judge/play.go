package judge

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/internal/testseed"
)

// longest is what a schedule may take; those that end take some minutes.
const longest = time.Hour

// Play plays so many schedules, or with WLLOCK_LONG=1 so many more, each in a bubble. play gets the seed of its schedule.
func Play(t *testing.T, schedules, long int, play func(w *World, seed uint64)) {
	t.Helper()
	if os.Getenv("WLLOCK_LONG") == "1" {
		schedules = long
	}
	first, counts := testseed.Seed(t), map[string]int{}
	for i := range schedules {
		seed := first + uint64(i)
		w := &World{inside: map[string][]*hold{}, fences: map[string]uint64{}, counts: counts}
		synctest.Test(t, func(*testing.T) {
			endless := time.AfterFunc(longest, func() {
				panic(fmt.Sprintf("with WLLOCK_SEED=%d: no end after %v of the schedule's time", seed, longest))
			})
			defer endless.Stop()
			play(w, seed)
		})
		if len(w.found) > 0 {
			what := fmt.Sprintf("with WLLOCK_SEED=%d: %v", seed, w.found)
			if broken() {
				panic(what) // t.Fatal would wait for the tests beside this one
			}
			t.Fatal(what)
		}
	}
	t.Logf("%d schedules: %v", schedules, counts)
	for _, what := range []string{"entries", "errors", "lost", "left", "unread", "places lost", "abandoned", "closed"} {
		if counts[what] == 0 {
			t.Errorf("none of %q", what)
		}
	}
}
