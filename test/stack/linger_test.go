package stack_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// A lease that lingers is given back when another process is refused it, over backends that tell the holder of a place only, which is
// taken for that. Where a place is answered late enough, the first try has the lock.
func TestARefusalEndsLingering(t *testing.T) {
	for name, open := range map[string]func(*testing.T) func(...wllock.Option) *wllock.Locker{
		"redlock": func(t *testing.T) func(...wllock.Option) *wllock.Locker {
			all := servers(t, 3)
			return func(opts ...wllock.Option) *wllock.Locker { return lockerOn(t, openRedlock(t, all), opts...) }
		},
		"zookeeper": onZooKeeper,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instance := open(t)
			opts := []wllock.Option{wllock.WithLinger(time.Hour), wllock.WithLeaseTTL(bothTTL)}
			a, other := instance(opts...), instance(opts...)
			keys := map[string][]wllock.CallOption{"alone": nil, "permit": {wllock.Permits(3)}}
			if name == "redlock" {
				delete(keys, "permit") // it has none
			}
			for key, opts := range keys {
				require.NoError(t, a.Do(t.Context(), "n", key, nothing, opts...))
				require.Eventually(t, func() bool { return other.Do(t.Context(), "n", key, nothing, wllock.NoWait()) == nil },
					10*time.Second, 10*time.Millisecond, key)
			}
		})
	}
}
