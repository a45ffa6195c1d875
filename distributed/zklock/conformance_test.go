package zklock

import (
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/zktest"
)

// suiteTTL is long enough for a JVM on a machine that is ten times too busy.
const suiteTTL = 4 * time.Second

func TestConformance(t *testing.T) {
	t.Parallel()
	need(t)
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service {
		proxy, root := zktest.NewProxy(t, need(t).Addr), newRoot()
		return locktest.Service{
			Backend: open(t, proxy.Addr, root),
			Another: func() distributed.Backend { return open(t, proxy.Addr, root) },
			Expire:  func(key string) { expire(t, plainConn(t, server.Addr), root, key) },
			Cut:     proxy.Stall,
		}
	}})
}
