package zklock

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// No part of a key leaves the process, whatever ZooKeeper and the client say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	testscope.Long(t, "takes rights and connections away")
	server, root := zktest.Shared(t), newRoot()
	proxy, operator := testproc.NewProxy(t, server.Addr), plainConn(t, server.Addr)
	acl := func(perms int32) {
		nodes, _, err := operator.Children(root)
		require.NoError(t, err)
		for _, n := range nodes {
			if strings.HasPrefix(n, "shop:") {
				_, err := operator.SetACL(root+"/"+n, zk.WorldACL(perms|zk.PermAdmin), -1)
				if err != nil { // it was a container without children
					require.ErrorIs(t, err, zk.ErrNoNode)
				}
			}
		}
	}
	hinders := testlocker.Cuts(proxy, server.Addr)
	hinders["no right to delete"] = func(*testing.T) func() { acl(zk.PermRead | zk.PermCreate); return func() { acl(zk.PermAll) } }
	hinders["no rights"] = func(*testing.T) func() { acl(0); return func() { acl(zk.PermAll) } }
	testlocker.Secrecy{
		System: "shop", TTL: 6 * time.Second,
		Open: func(t *testing.T, log *slog.Logger) distributed.Backend {
			return open(t, proxy.Addr, root, WithLogger(log))
		},
		Hinders: hinders,
	}.Run(t)
}
