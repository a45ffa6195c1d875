package memlock_test

import (
	"testing"

	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
)

func open(locktest.TB) locktest.Service {
	b := memlock.New()
	return locktest.Service{Backend: b, Expire: b.Expire, Cut: b.Partition, Forget: func(string) {}} // a free lock is forgotten at once
}

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Open: open})
}

func TestConformanceInBubbles(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Open: open, Bubble: true})
}
