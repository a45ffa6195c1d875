package outage_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A backend that comes and goes has lines of its own for the first outages, and then one a minute. It ends with a minute without an
// outage, and then the next one has its own again. An outage that lasts has its lines also in between.
func TestABackendThatComesAndGoesHasALineAMinute(t *testing.T) {
	for _, name := range []string{"closed", "local"} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			b := newObservable(after(time.Millisecond))
			p := policies(t, b, time.Second, logTo(&log))[name]
			lines := func(what string) int { return strings.Count(log.String(), what) }
			away := func(d time.Duration) {
				b.does(unreached)
				for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
					_ = enter(p, 10*time.Millisecond)
				}
				b.does(after(time.Millisecond))
				time.Sleep(time.Second)
				require.NoError(t, enter(p, time.Second))
				synctest.Wait()
			}
			flap := func(d time.Duration) {
				for until := time.Now().Add(d); time.Now().Before(until); away(1500 * time.Millisecond) {
				}
			}
			flap(5 * time.Minute)
			both := 2 // policies over this backend
			require.Equal(t, 3*both, lines("backend is back"))
			require.Equal(t, 3*both, lines("backend is away: locks are refused")+lines("backend is away: callers wait"))
			require.LessOrEqual(t, lines("locks are local"), 3)
			require.GreaterOrEqual(t, lines("backend comes and goes"), 4*both)
			require.LessOrEqual(t, lines("backend comes and goes"), 5*both)
			require.Contains(t, log.String(), "outages=2")
			require.Contains(t, log.String(), "dial")
			flap(30 * time.Second)
			away(150 * time.Second)
			require.Equal(t, 2*both, lines("backend is still away"))
			require.Equal(t, 4*both, lines("backend is back"))
			time.Sleep(3 * time.Minute)
			log.Reset()
			away(time.Second)
			require.Equal(t, both, lines("backend is back"), "it is news again")
			flap(20 * time.Second)
		})
	}
}
