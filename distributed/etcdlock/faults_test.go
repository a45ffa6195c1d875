package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// cutOff returns two backends on the shared server, and what cuts the first of them off.
func cutOff(t *testing.T) (first, second *Backend, proxy *testproc.Proxy) {
	t.Helper()
	server := etcdtest.Shared(t)
	proxy, prefix := testproc.NewProxy(t, server.Addr), newPrefix()
	return open(t, proxy.Addr, prefix), open(t, server.Addr, prefix), proxy
}

// A holder that is cut off knows that its lease has ended before the next one is let in.
func TestExpiryWhileHeld(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	b, other, proxy := cutOff(t)
	testlocker.ExpiryWhileHeld(t, asker(t, b, "k"), asker(t, other, "k"), proxy.Stall)
}

// count returns the number of keys with a prefix.
func count(t *testing.T, c *clientv3.Client, prefix string) int64 {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return got.Count
}

// The etcd leases and their keys outlive a restart.
func TestServerRestarts(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	private := etcdtest.Start(t)
	testlocker.Restarts(t, asker(t, open(t, private.Addr, newPrefix()), "k"), private)
}

// Were an event to get lost, a waiter would look every H.
func TestAnEventThatNeverComes(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("a")
	p := ask.Place("b")
	b.watches.remove(claimOf(p).watching[0]) // so nobody hears of it
	release(t, l)
	release(t, granted(t, p))
}

// The revision at which a watch is to go on was compacted while the connection was away: the waiter looks.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy, prefix := testproc.NewProxy(t, server.Addr), newPrefix()
	b, other := open(t, proxy.Addr, prefix), open(t, server.Addr, prefix)
	l := asker(t, other, "k").Lease("holder", lasting(long))
	held := asker(t, b, "held").Lease("a", lasting(long))
	p := asker(t, b, "k").Place("waiter", lasting(long))
	require.Eventually(t, func() bool { return len(b.watches.ids()) == 2 }, patience, time.Millisecond)
	proxy.Forward("127.0.0.1:1") // nobody is there
	release(t, l)
	contender := asker(t, other, "held").Place("b", lasting(long))
	c := plainClient(t, server.Addr)
	got, err := c.Put(t.Context(), "/other", "x")
	require.NoError(t, err)
	_, err = c.Compact(t.Context(), got.Header.Revision)
	require.NoError(t, err)
	proxy.Forward(server.Addr)
	next := granted(t, p)
	require.NotNil(t, next)
	require.Eventually(t, held.Contended, patience, time.Millisecond)
	release(t, next)
	release(t, held)
	release(t, granted(t, contender))
}
