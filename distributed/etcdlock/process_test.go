package etcdlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func openURL(url string) (distributed.Backend, error) { return Open(url) }

// A server looks every 500 ms, and removes an etcd lease with a proposal of its own.
func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	t.Parallel()
	server := "etcd://" + etcdtest.Shared(t).Addr
	testlocker.Processes{URL: server + newPrefix(), Open: openURL, TTL: ttl, Notice: 500 * time.Millisecond}.Run(t)
}

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	prefix := newPrefix()
	testlocker.HotKey(t, func() distributed.Backend { return open(t, etcdtest.Shared(t).Addr, prefix) })
}

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	testlocker.ManyPermits(t, asker(t, onShared(t), "k"), driver.MostFollowed+8)
}

func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes a server away, and brings it back")
	t.Parallel()
	private := etcdtest.Start(t)
	testlocker.Outage(t, open(t, private.Addr, newPrefix()), private)
}

// A client whose clock is off by years takes part like any other: no time of a client's is sent to a server. In a bubble the
// time is that of the year 2000, and stands still while a connection is open.
func TestClientClockThatIsYearsOff(t *testing.T) {
	server, prefix := etcdtest.Shared(t), newPrefix()
	now := asker(t, open(t, server.Addr, prefix), "k")
	calls, done := make(chan func()), make(chan struct{})
	go func() {
		for f := range calls {
			go func() {
				defer func() { done <- struct{}{} }() // also after a failure
				f()
			}()
		}
	}()
	defer close(calls)
	outside := func(f func()) {
		calls <- f
		<-done
	}
	synctest.Test(t, func(bubble *testing.T) {
		require.Equal(bubble, 2000, time.Now().Year())
		then := asker(bubble, open(bubble, server.Addr, prefix), "k")
		var held distributed.Lease
		var waits distributed.Place
		last := uint64(0)
		outside(func() { held = now.Lease("now", lasting(long)) })
		for range 5 {
			p := then.Place("then", lasting(long))
			require.Empty(bubble, p.Granted())
			outside(func() {
				require.Greater(t, fence(t, held), last)
				release(t, held)
			})
			l := <-p.Granted()
			require.NotNil(bubble, l)
			outside(func() {
				waits = now.Place("now", lasting(long))
				require.Empty(t, waits.Granted())
			})
			last = fence(bubble, l)
			release(bubble, l)
			outside(func() { held = granted(t, waits) })
		}
		outside(func() { release(t, held) })
	})
}
