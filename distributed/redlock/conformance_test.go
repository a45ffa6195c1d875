package redlock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/redistest"
)

// leftOut names what fails by chance.
func leftOut(c locktest.Case) string {
	chancy := []string{
		"a release during a renewal is final", "fences grow from lease to lease", "a holder that was queued learns that others still wait",
	}
	if testing.Short() && slices.Contains(chancy, c.Name) {
		return "fails by chance"
	}
	return ""
}

// fixture opens a service for each case: the servers are shared, the proxies are its own.
func fixture(s *servers, opts ...Option) locktest.Fixture {
	return locktest.Fixture{TTL: 4 * locktest.DefaultTTL, Skip: leftOut, Open: func(t locktest.TB) locktest.Service {
		var clients []redis.UniversalClient
		var direct []*redis.Client
		var proxies []*redistest.Proxy
		connect := func(addr string) *redis.Client {
			c := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		for _, one := range s.all {
			p := redistest.NewProxy(t, one.Addr)
			proxies = append(proxies, p)
			clients = append(clients, connect(p.Addr))
			d := connect(one.Addr)
			if err := d.Ping(context.Background()).Err(); err != nil { // so that it is connected
				t.Fatalf("%v", err)
			}
			direct = append(direct, d)
		}
		open := func() distributed.Backend {
			b, err := New(clients, opts...)
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			return b
		}
		forget := func(keys ...string) { // all at once: the suite measures from when it returns
			var all sync.WaitGroup
			for _, c := range direct {
				all.Go(func() { c.Del(context.Background(), keys...) })
			}
			all.Wait()
		}
		return locktest.Service{
			Backend: open(), Another: open, NoPermits: true,
			Holder: func(string) string { return identity.Process("") }, // a token names the process
			Expire: func(key string) { // all at once: the suite measures from when it returns
				settled(direct, key)
				forget(key)
			},
			Forget: func(key string) {
				forget(slices.DeleteFunc(keysOf(key), func(one string) bool { return one == keysOf(key)[1] })...) // the mark is of all locks
			},
			Cut: func(cut bool) {
				for _, p := range proxies {
					p.SetHalfOpen(cut)
				}
			},
		}
	}}
}

// settled waits, for two seconds at most, until all servers name the same holder: what was still under way to one of them would be a vote
// for whom the key is taken away from.
func settled(servers []*redis.Client, key string) {
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		holders := make(map[string]bool)
		for _, c := range servers {
			holders[c.Get(context.Background(), key).Val()] = true
		}
		if len(holders) == 1 {
			return
		}
	}
}

func TestConformance(t *testing.T) {
	f := fixture(start(t, 5))
	f.Skip = locktest.Brief
	locktest.Run(t, f)
}

func TestConformanceWithFences(t *testing.T) {
	locktest.Run(t, fixture(start(t, 3), WithQuorumFences()))
}
