//go:build linux

package command

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/zktest"
)

// backends start a server each, and return its URL.
var backends = map[string]func(*testing.T) string{
	"redis": func(t *testing.T) string { return "redis://" + redistest.Start(t).Addr },
	"cluster": func(t *testing.T) string {
		return "redis+cluster://" + strings.Join(redistest.StartCluster(t).Addrs(), ",")
	},
	"redlock": func(t *testing.T) string {
		return "redlock://" + redistest.Start(t).Addr + "," + redistest.Start(t).Addr + "," + redistest.Start(t).Addr + "?fences=quorum"
	},
	"zk": func(t *testing.T) string { return "zk://" + zktest.Start(t).Addr + "/locks" },
	"kubernetes": func(t *testing.T) string {
		_, url := kubernetesServer(t)
		return url
	},
	"nats":     func(t *testing.T) string { return natsServer(t, true) },
	"etcd":     func(t *testing.T) string { return "etcd://" + etcdtest.Start(t).Addr },
	"postgres": func(t *testing.T) string { return dbtest.SharedPostgres(t).URL() },
	"mysql":    func(t *testing.T) string { return dbtest.SharedMariaDB(t).URL() },
	"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "locks.db") },
}

// Who, ls, top and break tell the same of every backend.
func TestLookOverBackends(t *testing.T) {
	t.Parallel()
	for name, service := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := onBackend(t, service(t))
			holder := holding(t, env)
			out, _ := exits(t, 0, env, "who", "n", "1")
			require.Contains(t, out, "shop:n:1 is held, exclusive")
			require.Regexp(t, `holder   \S+-[a-z2-7]{10}, on `, out)
			next := start(t, env, stays...)
			awaitWaiters(t, env, "n", "1", 1)
			_, out, err := run(t, env, "ls", "shop:n")
			require.Regexp(t, `(?m)^shop:n:1  exclusive  .*  1  `, strings.ReplaceAll(out, "1        ", "1  "), err)
			out, _ = exits(t, 0, env, "break", "shop:n:1", "--yes", "--reason", "stuck")
			require.Contains(t, out, "reason=stuck")
			require.Equal(t, lost, holder.ends(), holder.err.String())
			require.Contains(t, holder.err.String(), "the lock was broken: ")
			next.says("in")
			require.Greater(t, fenceOf(t, next), fenceOf(t, holder))
			_, out, _ = run(t, env, "who", "n", "1")
			require.Regexp(t, `broken   .*: stuck`, out)
			_, out, _ = run(t, env, "top")
			require.Equal(t, 2, strings.Count(out, "\n"), out)
		})
	}
}

// onBackend returns the environment for a backend that is ready.
func onBackend(t *testing.T, url string) []string {
	t.Helper()
	env := shop(url, "WLLOCK_LEASE_TTL="+testTTL.String())
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "postgres", "mysql":
		exits(t, 0, env, "migrate")
	}
	return env
}

// stays is a job that says its fence and that it runs, and stays.
var stays = []string{"run", "--grace", "100ms", "n", "1", "--", "sh", "-c", "echo $WLLOCK_LOCK_FENCE in; exec sleep 120"}

func holding(t *testing.T, env []string) *program { return start(t, env, stays...).says("in") }

func fenceOf(t *testing.T, p *program) uint64 {
	t.Helper()
	fence, err := strconv.ParseUint(strings.Fields(p.out.String())[0], 10, 64)
	require.NoError(t, err)
	return fence
}
