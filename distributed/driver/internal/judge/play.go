package judge

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// longest is what a schedule may take; those that end take some minutes.
const longest = time.Hour

// Play plays so many schedules, or with WLLOCK_LONG=1 so many more, each in a bubble. play gets the seed of its schedule.
func Play(t *testing.T, schedules, long int, play func(w *World, seed uint64)) {
	t.Helper()
	counts := map[string]int{}
	all := testseed.Each(t, testscope.Scale(schedules, long), func(seed uint64) {
		w := &World{inside: map[string][]*hold{}, fences: map[string]uint64{}, counts: counts}
		synctest.Test(t, func(*testing.T) {
			endless := time.AfterFunc(longest, func() {
				panic(fmt.Sprintf("WLLOCK_SEED=%d WLLOCK_PLAYS=1: no end after %v of the schedule's time", seed, longest))
			})
			defer endless.Stop()
			play(w, seed)
		})
		if len(w.found) > 0 {
			if broken() {
				panic(fmt.Sprintf("WLLOCK_SEED=%d: %v", seed, w.found)) // t.Fatal would wait for the tests beside this one
			}
			t.Error(w.found)
		}
	})
	t.Log(counts)
	for _, what := range []string{"entries", "errors", "lost", "left", "unread", "places lost", "abandoned", "closed"} {
		if all && counts[what] == 0 {
			t.Errorf("none of %q", what)
		}
	}
}
