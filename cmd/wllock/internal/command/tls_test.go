package command

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/tlstest"
	"github.com/wllock/wllock/internal/zktest"
)

// A command needs no more than the environment names, and the doctor looks at the server itself by the same.
func TestTLSOfTheEnvironment(t *testing.T) {
	t.Parallel()
	ours := tlstest.NewAuthority(t)
	server, client := ours.Issue("locks.test"), ours.Issue("client.test")
	behind := func(t *testing.T, addr string) string { return tlstest.NewProxy(t, addr, server, ours.File).Addr }
	for name, service := range map[string]struct {
		url     func(t *testing.T) string
		subject string // what the doctor finds out of the server
	}{
		"redis": {func(t *testing.T) string { return "rediss://" + behind(t, redistest.Start(t).Addr) }, "version"},
		"redlock": {func(t *testing.T) string {
			var all []string
			for range 3 {
				all = append(all, behind(t, redistest.Start(t).Addr))
			}
			return "redlocks://" + strings.Join(all, ",")
		}, "version"},
		"zk":   {func(t *testing.T) string { return "zks://" + behind(t, zktest.Start(t).Addr) }, "server"},
		"etcd": {func(t *testing.T) string { return "etcds://" + behind(t, etcdtest.Start(t).Addr) }, "member"},
		"memcached": {func(t *testing.T) string {
			return "memcacheds://" + behind(t, dbtest.Memcached(t).Addr) + "?unfenced=true"
		}, "lock"},
		"postgres": {func(t *testing.T) string {
			u, err := url.Parse(dbtest.SharedPostgres(t).URL())
			require.NoError(t, err)
			u.Host, u.RawQuery = behind(t, u.Host), ""
			return u.String()
		}, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trusted := []string{"WLLOCK_TLS_CA=" + ours.File, "WLLOCK_TLS_CERT=" + client.Cert, "WLLOCK_TLS_KEY=" + client.Key}
			backend := service.url(t)
			env := shop(backend, append(trusted, "WLLOCK_TLS_SERVER_NAME=locks.test", "WLLOCK_LEASE_TTL=5s")...)
			if name == "postgres" {
				exits(t, 0, env, "migrate")
			}
			out, _ := exits(t, 0, env, "run", "n", "1", "--", "echo", "held")
			require.Equal(t, "held\n", out)
			_, found := examined(t, env)
			require.Contains(t, found["access"], "ok: ", found)
			require.Contains(t, found[service.subject], "ok: ", found)

			_, found = examined(t, shop(backend, append(trusted, "WLLOCK_TLS_SERVER_NAME=other.test")...))
			require.Regexp(t, "error: .*locks.test, not other.test.*docs/settings.md", found["access"])
		})
	}
}
