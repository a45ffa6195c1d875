package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/openurl"
)

// What a server says moves no cursor.
func TestFindingsArePrintable(t *testing.T) {
	var out strings.Builder
	Write(&out, []Finding{{Subject: "access", What: "error: \x1b[2J\u009b", Means: "\x1b]0;x\a", Mend: "\u202e"}})
	require.NotRegexp(t, "[\x1b\x07\u009b\u202e]", out.String())
	require.Contains(t, out.String(), `error: \x1b[2J\u009b`)
}

// Where keys have no beginning in common, the server would show those of everybody.
func TestKeysAreLookedAtWhereTheyBeginAlike(t *testing.T) {
	for pattern, want := range map[config.KeyPattern]string{
		"": "shop:*:*", "{system}:{name}:{key}": "shop:*:*", "lock:{system}:{name}:{key}": "lock:shop:*:*", "[x]*{key}": `\[x]\**`,
		"{name}:{key}": "", "{key}": "",
	} {
		got, known := locksOf(config.Config{SystemName: "shop", RedisKey: pattern})
		require.Equal(t, want != "", known, pattern)
		if known {
			require.Equal(t, want, got)
		}
	}
}

// Nodes of keys that pile up are found, with the setting that bounds how fast a server deletes them.
func TestNodesThatPileUpAreFound(t *testing.T) {
	for count, want := range map[string]Level{"12": Fine, "100000": Fine, "100001": Warning} {
		var p patient
		p.nodes(count)
		require.Len(t, p.findings, 1)
		require.Equal(t, want, p.findings[0].Level, count)
		if want == Warning {
			require.Contains(t, p.findings[0].Mend, "znode.container.maxPerMinute")
		}
	}
}

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
