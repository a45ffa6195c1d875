package etcdlock

import (
	"testing"

	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/testlocker"
)

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	testlocker.ManyPermits(t, asker(t, onShared(t), "k"), driver.MostFollowed+8)
}
