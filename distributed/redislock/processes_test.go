package redislock

import (
	"testing"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func openURL(url string) (distributed.Backend, error) { return Open(url) }

func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	t.Parallel()
	testlocker.Processes{URL: "redis://" + redistest.Start(t).Addr, Open: openURL, TTL: testTTL}.Run(t)
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	s := redistest.Start(t)
	testlocker.HotKey(t, func() distributed.Backend { return open(t, s.Addr) })
}
