package kubelock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/kubetest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a server by its address, which may be that of a proxy.
func open(t locktest.TB, s *kubetest.Server, addr string) *Backend {
	t.Helper()
	b, err := Open("kubernetes://" + kubetest.Namespace + "?kubeconfig=" + s.Kubeconfig(t, addr))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// suiteTTL leaves a machine with much load time for TLS and HTTP/2 on both sides, which are both here.
const suiteTTL = 5 * locktest.DefaultTTL

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service {
		s := kubetest.Start(t)
		proxy := testproc.NewProxy(t, s.Addr)
		direct := open(t, s, s.Addr)
		return locktest.Service{
			Backend: open(t, s, proxy.Addr),
			Another: func() distributed.Backend { return open(t, s, proxy.Addr) },
			Expire: func(key string) {
				if err := testlocker.Expire(direct.store, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}
