package simulated

import (
	"testing"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Mistakes of the simulated services, which schedules must find.
const (
	flawExcludes = "no process excludes another"
	flawPermits  = "one permit too many"
	flawGhost    = "what a request without an answer has brought stays"
	flawExpires  = "a lease ends at the service before its time"
	flawRelease  = "a release is answered and not carried out"
	flawFences   = "all callers of a lease have one fence"
	flawLeave    = "leaving is answered and not carried out"

	flawDeaf = "a request does not end with its context"

	flawPutCompares    = "a document is written over any other"
	flawDeleteCompares = "a document is deleted whatever it says"
	flawConflict       = "a write that has lost is answered as if it had won"
	flawForgets        = "a document is forgotten before its time"
)

var (
	flawsOfMemory = []string{
		flawExcludes, flawPermits, flawGhost, flawExpires, flawRelease, flawFences, flawLeave, flawDeaf,
	}
	flawsOfDocuments = []string{flawPutCompares, flawDeleteCompares, flawConflict, flawForgets}
)

// mostSchedules is how many schedules a flaw may need.
const mostSchedules = 100_000

// TestFlawsAreFound has each mistake of a simulated service found by some schedule, and says by which rule, and how many it took.
func TestFlawsAreFound(t *testing.T) {
	testscope.Long(t, "plays hundreds of schedules")
	first := testseed.Seed(t)
	for service, flaws := range map[string][]string{"memlock": flawsOfMemory, "register": flawsOfDocuments} {
		for _, flaw := range flaws {
			t.Run(service+"/"+flaw, func(t *testing.T) {
				for n := range uint64(mostSchedules) {
					if _, wrong := play(t, first+n, newSeen(), service, flaw); len(wrong) > 0 {
						t.Logf("found by schedule %d: %s", n+1, wrong[0])
						return
					}
				}
				t.Errorf("%d schedules have not found it", mostSchedules)
			})
		}
	}
}
