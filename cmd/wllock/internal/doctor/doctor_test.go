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
	"github.com/wllock/wllock/internal/redisopts"
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

// A hosted service says less of itself than Redis: what it leaves out is named, and nothing is concluded from it.
func TestWhatINFODoesNotSayIsNotGuessed(t *testing.T) {
	for text, want := range map[string]map[string]Level{
		"redis_version:7.4.2\r\nrole:master\r\nconnected_slaves:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\naof_last_write_status:ok\r\n": {
			"version": Fine, "replicas": Fine, "eviction": Fine, "persistence": Fine},
		"redis_version:7.4.2\r\nmaxmemory_policy:noeviction\r\n": {"version": Fine, "eviction": Fine, "server": Warning},
		"used_memory:1\r\n": {"server": Warning},
	} {
		var p patient
		p.redisInfo(fieldsOf(text), redisopts.KindSingle)
		found := map[string]Level{}
		for _, f := range p.findings {
			found[f.Subject] = f.Level
		}
		require.Equal(t, want, found, text)
		if len(want) == 1 {
			require.Contains(t, p.findings[0].What, "lacks redis_version, role, maxmemory_policy, aof_enabled")
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
