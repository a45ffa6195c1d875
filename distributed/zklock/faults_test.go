package zklock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// cutOff returns two backends on the shared server, and what cuts the first of them off.
func cutOff(t *testing.T) (first, second *Backend, proxy *testproc.Proxy) {
	t.Helper()
	proxy, root := newProxy(t), newRoot()
	return open(t, proxy.Addr, root), open(t, zktest.Shared(t).Addr, root), proxy
}

// A holder that is cut off knows that its lease has ended before the next one is let in, and the server does not wait for
// longer than the time-out that it has granted.
func TestExpiryWhileHeld(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	b, other, proxy := cutOff(t)
	testlocker.ExpiryWhileHeld(t, asker(t, b, "k"), asker(t, other, "k"), proxy.Stall)
}

func TestExpiryWhileWaiting(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	b, other, proxy := cutOff(t)
	l := asker(t, other, "k").Lease("holder", lasting(long))
	p := asker(t, b, "k").Place("waiter")
	behind := asker(t, other, "k").Place("behind", lasting(long))
	proxy.Stall(true)
	time.Sleep(2 * ttl) // the server ends the session after ttl and up to two ticks
	release(t, l)
	release(t, granted(t, behind))
	proxy.Stall(false)
	require.True(t, granted(t, p) == nil, "a place whose session has expired was granted")
	release(t, asker(t, b, "k").Lease("waiter"))
}

// The sessions and their nodes outlive a restart.
func TestServerRestarts(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	zktest.Shared(t)
	private := zktest.Start(t)
	testlocker.Restarts(t, asker(t, open(t, private.Addr, newRoot()), "k"), private.Server)
}

func openURL(url string) (distributed.Backend, error) { return Open(url) }

// A server ends a session up to two ticks later.
func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	t.Parallel()
	testlocker.Processes{URL: "zk://" + zktest.Shared(t).Addr + newRoot(), Open: openURL, TTL: ttl, Notice: 500 * time.Millisecond}.Run(t)
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	root := newRoot()
	testlocker.HotKey(t, func() distributed.Backend { return open(t, zktest.Shared(t).Addr, root) })
}

func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	zktest.Shared(t)
	private := zktest.Start(t)
	testlocker.Outage(t, open(t, private.Addr, newRoot()), private.Server)
}

// A server whose longest session time-out was made shorter ends a session that moves to it earlier than the leases promise.
func TestAServerThatGrantsLessOnAReconnect(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	l := asker(t, b, "k").Lease("a")
	s := claimOf(l).s
	s.opened(time.Now(), s.timeout())
	require.False(t, s.Over())
	s.opened(time.Now(), s.timeout()/2)
	lost(t, l)
	next, p := asker(t, b, "k").Enter("b") // on a new session
	if p != nil {
		next = granted(t, p)
	}
	release(t, next)
}
