package stack_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/internal/zktest"
)

// The opener of docs/zookeeper.md: several servers, a chroot, and the lease TTL of the environment.
func TestZooKeeperFromTheEnvironment(t *testing.T) {
	server := zktest.Start(t)
	t.Setenv("WLLOCK_SYSTEM_NAME", "order")
	t.Setenv("WLLOCK_LEASE_TTL", "7s")
	t.Setenv("WLLOCK_BACKEND", "zk://"+server.Addr+","+server.Addr+"/a/b")
	settings, err := config.FromEnv()
	require.NoError(t, err)
	settings = settings.WithOpener("zk", func(_ context.Context, u *url.URL) (distributed.Backend, error) {
		return zklock.Open(u.String(), zklock.WithSessionTimeout(settings.LeaseTTL))
	})
	locker, err := settings.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), "product", "1", nothing))
	require.NoError(t, locker.Close(t.Context()))
}

// onZooKeeper opens instances on one server, each with a backend of its own.
func onZooKeeper(t *testing.T) func(...wllock.Option) *wllock.Locker {
	addr := zktest.Start(t).Addr
	return func(opts ...wllock.Option) *wllock.Locker { return lockerOn(t, zooKeeperOn(t, addr), opts...) }
}

func zooKeeperOn(t *testing.T, addr string) distributed.Backend {
	t.Helper()
	b, err := zklock.New([]string{addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
