package zklock

import (
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/testlocker"
)

const (
	// ttl is that of leases in tests of faults: short, so that they end soon, and long enough for a busy machine.
	ttl = 4 * time.Second
	// long is that of leases that must not end.
	long     = 10 * time.Minute
	patience = testlocker.Patience
)

// asker makes requests for a key.
func asker(t *testing.T, b distributed.Backend, key string) testlocker.Asker {
	return testlocker.Asker{T: t, B: b, Key: key, TTL: ttl}
}

var (
	shared, lasting        = testlocker.AsReader, testlocker.Lasting
	granted, lost, release = testlocker.Granted, testlocker.Lost, testlocker.Release
	claimed, fence, ready  = testlocker.Claimed, testlocker.Fence, testlocker.Ready
)

// claimOf is that of a lease or a place.
func claimOf(x any) *claim { return &driver.AttemptOf[claim](x).Wire }
