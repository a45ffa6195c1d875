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

func TestFleets(t *testing.T) {
	testscope.Long(t, "kills and stops processes")
	t.Parallel()
	for name, f := range map[string]testlocker.Fleet{
		"a lock": {Lanes: 3}, "permits": {Limit: 8, Lanes: 5}, "permits of Lockers": {Limit: 8, Lanes: 5, Lockers: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			f.URL, f.TTL = func(int) string { return "redis://" + s.Addr }, testTTL
			f.Run(t)
		})
	}
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	s := redistest.Start(t)
	testlocker.HotKey(t, func() distributed.Backend { return open(t, s.Addr) })
}
