package memcachelock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// No part of a key leaves the process, whatever memcached and the client say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	testscope.Long(t, "takes connections away")
	server := dbtest.Memcached(t)
	proxy := testproc.NewProxy(t, server.Addr)
	testlocker.Secrecy{
		System: "shop", TTL: 3 * time.Second,
		Open:    func(t *testing.T, _ *slog.Logger) distributed.Backend { return open(t, proxy.Addr) },
		Hinders: testlocker.Cuts(proxy, server.Addr),
	}.Run(t)
}
