package etcdlock

import (
	"testing"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func TestFaultsInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	prefix := newPrefix()
	open := func(addr string) distributed.Backend { return open(t, addr, prefix) }
	testlocker.StormOver(t, 6, ttl, etcdtest.StartCluster(t), open, "/x/", "/s/", "/xp/").Run(t)
}
