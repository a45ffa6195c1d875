package redislock

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/redistest"
)

// service is the fixture of the suite: all cases share the servers, with keys of their own.
func service(t locktest.TB, client redis.UniversalClient) locktest.Service {
	open := func() distributed.Backend {
		b, err := New(client)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		return b
	}
	return locktest.Service{
		Backend: open(),
		Another: open,
		Expire:  func(key string) { client.Del(context.Background(), key) },
		Forget: func(key string) {
			all := keysOf(key, "")
			client.Del(context.Background(), all[:]...)
		},
	}
}

// busyTTL is for servers that share the machine with the suite: a process that has to wait for a processor must not lose a
// lease.
const busyTTL = 4 * locktest.DefaultTTL

func TestConformanceSingle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locktest.Run(t, locktest.Fixture{TTL: busyTTL, Open: func(t locktest.TB) locktest.Service {
		proxy := redistest.NewProxy(t, server.Addr)
		client := server.Client(func(o *redis.Options) { o.Addr = proxy.Addr })
		s := service(t, client)
		s.Cut = func(cut bool) { proxy.SetHalfOpen(cut) }
		return s
	}})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	client := redistest.StartSentinel(t).Client()
	require.NoError(t, client.Ping(t.Context()).Err())
	locktest.Run(t, locktest.Fixture{TTL: busyTTL, Skip: locktest.Brief, Open: func(t locktest.TB) locktest.Service { return service(t, client) }})
}

func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t).Client()
	locktest.Run(t, locktest.Fixture{TTL: busyTTL, Skip: locktest.Brief, Open: func(t locktest.TB) locktest.Service { return service(t, client) }})
}
