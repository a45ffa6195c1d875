package zklock

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/zktest"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(zktest.Main(m))
}

var roots atomic.Int64

// newRoot is a root that no other test uses.
func newRoot() string { return fmt.Sprintf("/test-%d-%d", os.Getpid(), roots.Add(1)) }

func open(t locktest.TB, addr, root string, opts ...Option) *Backend {
	t.Helper()
	b, err := New([]string{addr}, append([]Option{WithRoot(root)}, opts...)...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// plainConn is a connection for what a test does behind the Backend's back.
func plainConn(t locktest.TB, addr string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}

// userConn is one of a user, "name:password", to the shared server.
func userConn(t locktest.TB, user string) *zk.Conn {
	t.Helper()
	conn := plainConn(t, zktest.Shared(t).Addr)
	if err := conn.AddAuth("digest", []byte(user)); err != nil {
		t.Fatalf("%v", err)
	}
	return conn
}

// left waits until a node has so many children.
func left(t *testing.T, addr, node string, n int) {
	t.Helper()
	conn := plainConn(t, addr)
	require.Eventually(t, func() bool {
		children, _, err := conn.Children(node)
		return err == nil && len(children) == n
	}, patience, 10*time.Millisecond)
}

// newProxy is one to the shared server.
func newProxy(t locktest.TB) *testproc.Proxy {
	t.Helper()
	return testproc.NewProxy(t, zktest.Shared(t).Addr)
}

const (
	// ttl is that of leases in tests of faults: short, so that they end soon, and long enough for a busy machine.
	ttl = 4 * time.Second
	// long is that of leases that must not end.
	long     = 10 * time.Minute
	patience = testlocker.Patience
)

// asker makes requests for a key.
func asker(t *testing.T, b distributed.Backend, key string) testlocker.Asker {
	return testlocker.Asker{T: t, B: b, Key: key, TTL: ttl}
}

var (
	shared, lasting        = testlocker.AsReader, testlocker.Lasting
	granted, lost, release = testlocker.Granted, testlocker.Lost, testlocker.Release
	claimed, fence, ready  = testlocker.Claimed, testlocker.Fence, testlocker.Ready
)

// claimOf is that of a lease or a place.
func claimOf(x any) *claim { return &driver.AttemptOf[claim](x).Wire }
