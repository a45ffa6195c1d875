package etcdlock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// No part of a key leaves the process, whatever etcd and the client say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	testscope.Long(t, "takes rights and connections away")
	g := startGuarded(t)
	proxy := testproc.NewProxy(t, g.Addr)
	below := g.prefix + "/"
	grant := func(right clientv3.PermissionType) {
		_, err := g.root.RoleRevokePermission(t.Context(), "shop", below, clientv3.GetPrefixRangeEnd(below))
		require.NoError(t, err)
		_, err = g.root.RoleGrantPermission(t.Context(), "shop", below, clientv3.GetPrefixRangeEnd(below), right)
		require.NoError(t, err)
	}
	testlocker.Secrecy{
		System: "shop", TTL: 6 * time.Second,
		Open: func(t *testing.T, log *slog.Logger) distributed.Backend {
			return g.open(t, proxy.Addr, WithLogger(log))
		},
		Hinders: map[string]func(*testing.T) func(){
			"no right to write": func(*testing.T) func() {
				grant(clientv3.PermissionType(clientv3.PermRead))
				return func() { grant(clientv3.PermissionType(clientv3.PermReadWrite)) }
			},
			"no right to read": func(*testing.T) func() {
				grant(clientv3.PermissionType(clientv3.PermWrite))
				return func() { grant(clientv3.PermissionType(clientv3.PermReadWrite)) }
			},
			"a cut": func(*testing.T) func() {
				proxy.Redirect("127.0.0.1:1")
				proxy.Cut()
				return func() { proxy.Redirect(g.Addr) }
			},
			"a stall": func(*testing.T) func() { proxy.Stall(true); return func() { proxy.Stall(false) } },
		},
	}.Run(t)
}
