package memcachelock

import (
	"testing"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
)

func TestConformance(t *testing.T) {
	server := dbtest.Memcached(t)
	locktest.Run(t, locktest.Fixture{TTL: 2 * locktest.DefaultTTL, Open: func(t locktest.TB) locktest.Service {
		proxy := testproc.NewProxy(t, server.Addr)
		direct := store{open(t, server.Addr)}
		return locktest.Service{
			Backend: open(t, proxy.Addr),
			Another: func() distributed.Backend { return open(t, proxy.Addr) },
			Expire: func(key string) {
				if err := testlocker.Expire(direct, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}
