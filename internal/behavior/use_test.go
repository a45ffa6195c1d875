package behavior

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Instances share permits, and their callers come again and again. In time that passes only where callers wait, what is lost is what
// the rules cost: a permit that is free while somebody waits.
func TestPermitsAreInUse(t *testing.T) {
	const permits, instances, calls, work = 8, 4, 4000, 5 * time.Millisecond // plus or minus a half
	for callers, want := range map[int]float64{64: .97, 3: .97, 2: .90} {
		synctest.Test(t, func(t *testing.T) {
			b := memlock.New()
			var all sync.WaitGroup
			var mu sync.Mutex // guards all below
			var begun, inside, most int
			var busy, last time.Duration // the sum of all stays, when the last call began its work
			start := time.Now()
			works := func(context.Context) error {
				mu.Lock()
				inside++
				most, last = max(most, inside), time.Since(start)
				mu.Unlock()
				stay := work/2 + rand.N(work)
				time.Sleep(stay)
				mu.Lock()
				defer mu.Unlock()
				inside--
				busy += stay
				return nil
			}
			more := func() bool {
				mu.Lock()
				defer mu.Unlock()
				begun++
				return begun <= calls
			}
			for range instances {
				l := lockerOn(t, b, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
				for range callers {
					all.Go(func() {
						for more() {
							require.NoError(t, l.Do(context.Background(), "n", "k", works, wllock.Permits(permits)))
						}
					})
				}
			}
			all.Wait()
			busy -= permits / 2 * work // about what is left of the others when the last begins
			share := float64(busy) / float64(permits*last)
			t.Logf("%d x %d: %.1f%% in use", instances, callers, 100*share)
			require.Equal(t, permits, most)
			require.GreaterOrEqual(t, share, want)
		})
	}
}
