package zklock

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/testlocker"
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

// expire deletes the nodes of a key's owners.
func expire(t locktest.TB, conn *zk.Conn, root, key string) {
	t.Helper()
	dir := path.Join(root, escape(key))
	children, _, err := conn.Children(dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("%v", err)
	}
	q, _ := (&settings{sequences: mostSequences}).parse("", children)
	for _, n := range q[:driver.Admitted(q, false)] {
		if err := conn.Delete(dir+"/"+n.name, -1); err != nil {
			t.Fatalf("%v", err)
		}
	}
}
