package kubelock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/kubetest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the stand-in, or a real one.
type server interface {
	Kubeconfig(t testproc.TB, addr string) string
}

// open opens a server by its address, which may be that of a proxy.
func open(t locktest.TB, s server, addr string) *Backend {
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
	conform(t, func(t locktest.TB) (server, string) {
		s := kubetest.Start(t)
		return s, s.Addr
	})
}

// The server that package kubetest stands in for, with RBAC and etcd, passes the same suite.
func TestRealServer(t *testing.T) {
	testscope.Long(t, "starts a kube-apiserver")
	s := kubetest.StartReal(t)
	conform(t, func(locktest.TB) (server, string) { return s, s.Addr })
}

func conform(t *testing.T, start func(locktest.TB) (s server, addr string)) {
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service {
		s, addr := start(t)
		proxy := testproc.NewProxy(t, addr)
		direct := open(t, s, addr)
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
