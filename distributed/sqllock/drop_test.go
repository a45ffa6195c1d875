package sqllock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/driver"
)

// One transaction at a time removes from a lock's row. Who comes meanwhile waits for it, and not for long: it has other locks to see to.
func TestOneTransactionRemovesFromARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := removing{rows: map[string]chan struct{}{}}
		begin := func(name string) (end func(), waited time.Duration) {
			start := time.Now()
			end = r.begin(t.Context(), name, takePatience)
			return end, time.Since(start)
		}
		end, _ := begin("k")
		other, waited := begin("other")
		require.Zero(t, waited)
		other()
		again, waited := begin("k")
		require.True(t, again == nil, "it is another's")
		require.Equal(t, takePatience, waited)
		time.AfterFunc(time.Millisecond, end)
		again, waited = begin("k")
		require.NotNil(t, again)
		require.Equal(t, time.Millisecond, waited)
		again()
		require.Empty(t, r.rows)
	})
}

// The answer to a release was lost, another instance of the process has had the lock since, and the releases of both meet. While the
// database's time is behind the fences, as when its clock was set back, the blocks of both end alike. The first one gives back none that
// the second has used, whichever comes first.
func TestReleasesOfOneLockThatMeetGiveBackTheirOwnFences(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		free(t, enter(t, b, "k"))
		run(t, b, "UPDATE {locks} SET fence = fence + 3600000000000")
		for _, turned := range []bool{false, true} {
			first := driver.AttemptOf[ours](enter(t, b, "k"))
			_, err := b.release(t.Context(), []*attempt{first})
			require.NoError(t, err)
			l := enter(t, b, "k", by("other"))
			fenceOf(t, l)
			used := fenceOf(t, l)
			both := []*attempt{first, driver.AttemptOf[ours](l)}
			_, last := first.Drawn()
			_, lastOther := both[1].Drawn()
			require.Equal(t, last, lastOther)
			if turned {
				slices.Reverse(both)
			}
			half{b}.Drop(t.Context(), both)
			l = enter(t, b, "k", by("third"))
			next, _ := l.NextFence()
			require.Greater(t, next, used)
			free(t, l)
		}
	})
}
