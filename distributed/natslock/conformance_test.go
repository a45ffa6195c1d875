package natslock

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server in this process.
func start(t locktest.TB, dir string, port int) *server.Server {
	t.Helper()
	return run(t, options(dir, port))
}

func options(dir string, port int) *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true}
}

func run(t locktest.TB, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func open(t locktest.TB, addr string) *Backend {
	t.Helper()
	b, err := Open("nats://" + addr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	s := start(t, t.TempDir(), server.RANDOM_PORT)
	locktest.Run(t, locktest.Fixture{TTL: 2 * locktest.DefaultTTL, Open: func(t locktest.TB) locktest.Service {
		proxy := testproc.NewProxy(t, s.Addr().String())
		direct := open(t, s.Addr().String())
		return locktest.Service{
			Backend: open(t, proxy.Addr),
			Another: func() distributed.Backend { return open(t, proxy.Addr) },
			Expire: func(key string) {
				if err := testlocker.Expire(direct.store, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}
