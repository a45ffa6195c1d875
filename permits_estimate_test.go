package wllock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// wronglyShed counts who was refused at once, and how many of them would have got one of n permits in time: when all earlier
// callers but n-1 have gone. The others wait in vain, or are served.
func wronglyShed(all []*shopper, n int) (shed, wrongly int) {
	last := make([]time.Time, n) // when the last n of those so far have gone, the last first
	for _, c := range all {
		if c.shed {
			shed++
			if last[n-1].Before(c.asked.Add(c.budget)) {
				wrongly++
			}
			continue
		}
		last = append(last, c.gone)
		slices.SortFunc(last, func(a, b time.Time) int { return b.Compare(a) })
		last = last[:n]
	}
	return shed, wrongly
}

// Callers that leave the line delay those behind them by no time, with permits as well.
func TestShedHopelessOfPermitsPrefersToAdmit(t *testing.T) {
	const n, callers, seed = 4, 8000, 1
	for _, load := range shedLoads {
		t.Run(load.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quick := shedLoad{load.name, load.hold, n}
				_, _, without := count(quick.run(t, seed, callers, wllock.Permits(n)))
				all := quick.run(t, seed, callers, wllock.Permits(n), wllock.WithShedHopeless())
				shed, wrongly := wronglyShed(all, n)
				_, _, with := count(all)
				t.Logf("refused %d, wrongly %d; waited in vain %d, without the option %d", shed, wrongly, with, without)
				require.LessOrEqual(t, wrongly*100, shed, "seed %d", seed)
				require.Greater(t, shed, callers/50, "it refuses at all")
				require.Less(t, with, without)
			})
		})
	}
}
