package etcdlock

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(etcdtest.Main(m))
}

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
	shared, permits, lasting = testlocker.AsReader, testlocker.ForOneOf, testlocker.Lasting
	granted, lost, release   = testlocker.Granted, testlocker.Lost, testlocker.Release
	claimed, fence, ready    = testlocker.Claimed, testlocker.Fence, testlocker.Ready
)

// claimOf returns the claim of a lease or a place.
func claimOf(x any) *claim { return &driver.AttemptOf[claim](x).Wire }

// rest waits until nothing is left to delete.
func rest(b *Backend) {
	for _, s := range b.sessions.All() {
		s.Lane.Flush(patience)
	}
}
