package etcdlock

import (
	"log/slog"
	"testing"
	"time"

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
	hinders := testlocker.Cuts(proxy, g.Addr)
	only := func(right clientv3.PermissionType) func(*testing.T) func() {
		return func(*testing.T) func() {
			g.grant(t, right)
			return func() { g.grant(t, clientv3.PermissionType(clientv3.PermReadWrite)) }
		}
	}
	hinders["no right to write"] = only(clientv3.PermissionType(clientv3.PermRead))
	hinders["no right to read"] = only(clientv3.PermissionType(clientv3.PermWrite))
	testlocker.Secrecy{
		System: "shop", TTL: 6 * time.Second,
		Open: func(t *testing.T, log *slog.Logger) distributed.Backend {
			return g.open(t, proxy.Addr, WithLogger(log))
		},
		Hinders: hinders,
	}.Run(t)
}
