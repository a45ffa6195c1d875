package sqllock_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// Beside what StormOver breaks, one statement in fifty is lost before or after the database has carried it out, or is rolled back as the
// victim of a deadlock.
func TestFaultsInAnyOrder(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	onEach(t, false, func(t *testing.T, d database) {
		seed, n := testseed.Seed(t), atomic.Uint64{}
		open := func(addr string) distributed.Backend {
			r := rand.New(rand.NewPCG(seed, 100+n.Add(1)))
			w := &wire{Connector: d.connector(), dialect: d.dialect}
			if d.server != nil {
				w.Connector = connectorOf(d.server.URLAt(addr))
			}
			w.breaksBy(func(kind string) fault {
				faults := []fault{lostRequest, lostReply, collides}
				if n := r.IntN(150); n < 2 || n == 2 && kind != "BEGIN" {
					return faults[n]
				}
				return passes
			})
			return backendOn(t, poolOf(t, w), d.dialect)
		}
		var servers []*testproc.Server
		if d.server != nil {
			servers = append(servers, d.server.Server)
		}
		testlocker.StormOver(t, 5, faultTTL, servers, open).Run(t)
		release(t, acquired(t, d.backend(t, nil), request("shop:storm:1", safely)))
	})
}
