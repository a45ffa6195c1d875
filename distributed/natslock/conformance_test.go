package natslock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/distributed/locktest"
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
	locktest.Run(t, locktest.Fixture{Open: func(t locktest.TB) locktest.Service {
		proxy := testproc.NewProxy(t, s.Addr().String())
		direct := open(t, s.Addr().String())
		return locktest.Service{
			Backend: open(t, proxy.Addr),
			Another: func() distributed.Backend { return open(t, proxy.Addr) },
			Expire: func(key string) {
				if err := expire(direct.store, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}

// expire has the owners of a lock be dead. Its queue stays.
func expire(s *store, key string) error {
	for {
		d, err := s.Get(context.Background(), key)
		if err != nil || d.Version == "" {
			return err
		}
		var lock map[string]any
		in := json.NewDecoder(bytes.NewReader(d.Data))
		in.UseNumber() // a fence is longer than a float64 is exact
		if err := in.Decode(&lock); err != nil {
			return err
		}
		delete(lock, "owners")
		if lock["queue"] != nil {
			lock["owners"] = []map[string]any{{"id": "nobody", "instance": "nobody", "ttl": 1}} // whose turn is over at once
		}
		data, _ := json.Marshal(lock)
		_, err = s.Put(context.Background(), key, data, d.Version, time.Hour)
		if !errors.Is(err, register.ErrConflict) {
			return err
		}
	}
}
