package redlock

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/redistest"
)

// fixture opens a service for each case: the servers are shared, the proxies are its own.
func fixture(s *servers, opts ...Option) locktest.Fixture {
	return locktest.Fixture{Open: func(t locktest.TB) locktest.Service {
		var clients []redis.UniversalClient
		var proxies []*redistest.Proxy
		for _, one := range s.all {
			p := redistest.NewProxy(t, one.Addr)
			proxies = append(proxies, p)
			c := redis.NewClient(&redis.Options{Addr: p.Addr})
			t.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		open := func() distributed.Backend {
			b, err := New(clients, opts...)
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			return b
		}
		return locktest.Service{
			Backend: open(), Another: open,
			Expire: func(key string) {
				for _, one := range s.all {
					c := redis.NewClient(&redis.Options{Addr: one.Addr})
					c.Del(context.Background(), key)
					_ = c.Close()
				}
			},
			Cut: func(cut bool) {
				for _, p := range proxies {
					p.SetHalfOpen(cut)
				}
			},
		}
	}}
}

func TestConformance(t *testing.T) {
	locktest.Run(t, fixture(start(t, 5)))
}

func TestConformanceWithFences(t *testing.T) {
	locktest.Run(t, fixture(start(t, 3), WithQuorumFences()))
}
