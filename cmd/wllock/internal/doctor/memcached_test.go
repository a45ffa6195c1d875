package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/openurl"
)

// One server of several that is away is named: the others go on without it.
func TestMemcachedServerThatIsAwayIsNamed(t *testing.T) {
	first, second := dbtest.Memcached(t), dbtest.Memcached(t)
	settings := config.Default().WithOpener("memcached", openurl.Opener(memcachelock.Open, nil))
	settings.SystemName, settings.LeaseTTL = "shop", 2*time.Second
	settings.Backend = config.NewURL("memcached://" + first.Addr + "," + second.Addr + "?unfenced=true")
	examine := func() (servers []Finding) {
		all, err := Examine(t.Context(), settings)
		require.NoError(t, err)
		return slices.DeleteFunc(all, func(f Finding) bool { return f.Subject != "server" })
	}
	servers := examine()
	require.Len(t, servers, 2)
	require.Equal(t, Fine, Worst(servers))
	second.Kill()
	servers = examine()
	require.Len(t, servers, 2)
	require.Equal(t, Fine, servers[0].Level)
	require.Equal(t, Error, servers[1].Level)
	require.Contains(t, servers[1].What, second.Addr)
}
