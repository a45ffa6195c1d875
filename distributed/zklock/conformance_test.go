package zklock

import (
	"errors"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/zktest"
)

const (
	// suiteTTL is long enough for a server that stands still for 2 s: three fifths of it are left at every moment. With a longer
	// one the window in which a case has its grant lie unread would outlast the suite's patience.
	suiteTTL = 4 * time.Second
	// suitePatience with answers is what the cases have themselves.
	suitePatience = 10 * time.Second
)

func TestConformance(t *testing.T) {
	t.Parallel()
	zktest.Shared(t)
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service {
		proxy, root := zktest.NewProxy(t, zktest.Shared(t).Addr), newRoot()
		patient := func(s *settings) { s.patience = suitePatience }
		return locktest.Service{
			Backend: open(t, proxy.Addr, root, patient),
			Another: func() distributed.Backend { return open(t, proxy.Addr, root, patient) },
			Expire:  func(key string) { expire(t, plainConn(t, zktest.Shared(t).Addr), root, key) },
			Cut:     proxy.Stall,
			Forget: func(key string) { // as the server does to an empty container
				if err := plainConn(t, zktest.Shared(t).Addr).Delete(path.Join(root, escape(key)), -1); err != nil && !errors.Is(err, zk.ErrNoNode) { // it may have done so
					t.Errorf("%v", err)
				}
			},
		}
	}})
}
