package etcdlock

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// One process holds 10,000 leases: all are renewed on time by the keepalives of one etcd lease, with a request or two per second
// for all of them.
func TestManyLeases(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	t.Parallel()
	const atOnce = 64
	leases := 10_000
	if testscope.Scale(race.Enabled, false) {
		leases /= 5
	}
	server := etcdtest.Start(t)
	b := open(t, server.Addr, newPrefix())
	held := make([]distributed.Lease, leases)
	each(leases, atOnce, func(i int) {
		held[i] = asker(t, b, fmt.Sprint("k", i)).Lease("a")
	})
	time.Sleep(ttl / 4) // for the watches, which share a stream
	requests := testlocker.Counted(t, b, func(distributed.Exchange) bool { return true })
	start := time.Now()
	for time.Since(start) < 2*ttl {
		for _, l := range held {
			require.Positive(t, distributed.Left(time.Now(), l.Until()))
		}
		time.Sleep(ttl / 20)
	}
	rate := float64(requests.Load()) / time.Since(start).Seconds()
	t.Logf("%.1f requests per second for %d leases", rate, leases)
	require.Less(t, rate, 20.0)
	each(leases, atOnce, func(i int) { release(t, held[i]) })
	require.Zero(t, count(t, plainClient(t, server.Addr), b.set.prefix+"/k"))
}

// each calls f for 0 to n-1, some at a time.
func each(n, atOnce int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	wg.Wait()
}

// Places of many keys look every H together, and cost no goroutine each.
func TestManyPlaces(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	t.Parallel()
	const places = 500
	const long = 12 * time.Second // H is 2 s
	server, prefix := etcdtest.Start(t), newPrefix()
	b, other := open(t, server.Addr, prefix), open(t, server.Addr, prefix)
	held, waits := make([]distributed.Lease, places), make([]distributed.Place, places)
	each(places, 16, func(i int) {
		key := fmt.Sprint("k", i)
		held[i] = asker(t, other, key).Lease("a", lasting(long))
		waits[i] = asker(t, b, key).Place("b", lasting(long))
	})
	requests := testlocker.Counted(t, b, func(distributed.Exchange) bool { return true })
	time.Sleep(distributed.HeartbeatInterval(long) * 4 / 3)
	t.Logf("%d requests for %d places in more than H", requests.Load(), places)
	require.Less(t, requests.Load(), int64(places/2))
	each(places, 16, func(i int) { release(t, held[i]) })
	each(places, 16, func(i int) { release(t, granted(t, waits[i])) })
}

// What a lease and a place leave in memory and in etcd: nothing.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	server, prefix := etcdtest.Shared(t), newPrefix()
	b := open(t, server.Addr, prefix)
	c := plainClient(t, server.Addr)
	for i, key := range []string{"a", "a/b", "%25", "..", "\U0001f512", " "} {
		ask := asker(t, b, key)
		l := ask.Lease("a", lasting(long))
		if i == 0 {
			time.Sleep(10 * time.Millisecond) // it is watched
		}
		p, left := ask.Place("b", lasting(long)), ask.Place("c", lasting(long))
		require.NoError(t, left.Leave(t.Context()))
		release(t, l)
		release(t, granted(t, p))
	}
	require.Zero(t, count(t, c, prefix+"/"))
	require.Empty(t, b.watches.ids())
	require.Eventually(t, b.engine.Idle, patience, time.Millisecond) // a caller's answer comes before that
	place := asker(t, b, "k")
	l := place.Lease("a", lasting(long))
	place.Place("b", lasting(long))
	require.NoError(t, b.Ping(t.Context()))
	release(t, l)
	require.NoError(t, b.Close())
	require.Zero(t, count(t, c, prefix+"/"))
}

// The names that may be used again are few.
func TestFreeNamesAreFew(t *testing.T) {
	var free names
	for range 2 * mostNames {
		free.put(free.take("/head/"))
		free.put(rand.Text() + rand.Text()[:idLength])
	}
	require.Equal(t, mostNames, free.n)
}
