package etcdlock

import (
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testproc"
)

const (
	// suiteTTL is long enough for a machine that stands still for 2 s: three quarters of it are left at every moment.
	suiteTTL = 4 * time.Second
	// suitePatience with answers is what the cases have themselves.
	suitePatience = 10 * time.Second
)

func TestConformance(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service {
		proxy, prefix := testproc.NewProxy(t, server.Addr), newPrefix()
		patient := func(s *settings) { s.patience = suitePatience }
		b := open(t, proxy.Addr, prefix, patient)
		return locktest.Service{
			Backend: b,
			Another: func() distributed.Backend { return open(t, proxy.Addr, prefix, patient) },
			Expire:  func(key string) { expire(t, plainClient(t, server.Addr), b, key) },
			Forget:  func(string) { compact(t, plainClient(t, server.Addr)) },
			Cut:     proxy.Stall,
		}
	}})
}
