package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
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
	suite(t, nil, func(b *Backend, conn *zk.Conn, key string) error { // as the server does to an empty container
		if err := conn.Delete(b.dirOf(key), -1); !errors.Is(err, zk.ErrNoNode) { // it may have done so
			return err
		}
		return nil
	})
}

// The suite, with lines of a few requests each.
func TestConformanceOfWornNodes(t *testing.T) { suite(t, locktest.Brief, nil, wearing(3)) }

func suite(t *testing.T, skip func(locktest.Case) string, forget func(b *Backend, conn *zk.Conn, key string) error, opts ...Option) {
	t.Helper()
	t.Parallel()
	server := zktest.Shared(t)
	opts = append(opts, func(s *settings) { s.patience = suitePatience })
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Skip: skip, Open: func(t locktest.TB) locktest.Service {
		proxy, root := newProxy(t), newRoot()
		behind := func(do func(b *Backend, conn *zk.Conn, key string) error) func(key string) {
			if do == nil {
				return nil
			}
			return func(key string) {
				if err := do(open(t, server.Addr, root, opts...), plainConn(t, server.Addr), key); err != nil {
					t.Fatalf("%v", err)
				}
			}
		}
		return locktest.Service{
			Backend: open(t, proxy.Addr, root, opts...),
			Another: func() distributed.Backend { return open(t, proxy.Addr, root, opts...) },
			Expire:  behind(expire),
			Forget:  behind(forget),
			Cut:     proxy.Stall,
		}
	}})
}

// expire deletes the nodes of a key's owners.
func expire(b *Backend, conn *zk.Conn, key string) error {
	v, err := b.line(b.dirOf(key), func(dir string) (got children, err error) {
		got.names, got.stat, err = conn.Children(dir)
		return got, err
	})
	for _, n := range v.q[:driver.Admitted(v.q, false)] {
		if err == nil {
			err = conn.Delete(b.dirOf(key)+"/"+n.name, -1)
		}
	}
	return err
}
