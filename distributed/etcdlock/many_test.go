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
	var requests atomic.Int64
	stop := b.Observe(func(distributed.Exchange) { requests.Add(1) })
	start := time.Now()
	for time.Since(start) < 2*ttl {
		for _, l := range held {
			require.Positive(t, distributed.Left(time.Now(), l.Until()))
		}
		time.Sleep(ttl / 20)
	}
	stop()
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
	var requests atomic.Int64
	stop := b.Observe(func(distributed.Exchange) { requests.Add(1) })
	time.Sleep(distributed.HeartbeatInterval(long) * 4 / 3)
	stop()
	t.Logf("%d requests for %d places in more than H", requests.Load(), places)
	require.Less(t, requests.Load(), int64(places/2))
	each(places, 16, func(i int) { release(t, held[i]) })
	each(places, 16, func(i int) { release(t, granted(t, waits[i])) })
}

// A release wakes one waiter, of 30.
func TestOneReleaseWakesOneWaiter(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("holder", lasting(long))
	places := make([]distributed.Place, 30)
	for i := range places {
		places[i] = ask.Place(fmt.Sprintf("waiter-%d", i), lasting(long))
	}
	require.Eventually(t, l.Contended, patience, time.Millisecond)
	for _, p := range places {
		before := b.watches.events.Load()
		release(t, l)
		l = granted(t, p)
		require.NotNil(t, l)
		time.Sleep(2 * time.Millisecond) // for events that must not come
		require.LessOrEqual(t, b.watches.events.Load()-before, int64(1))
	}
	release(t, l)
}

// A release wakes the run of readers that waits for it, and no other.
func TestOneReleaseWakesOneRunOfReaders(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("holder", lasting(long))
	var run, later []distributed.Place
	for range 10 {
		run = append(run, ask.Place("reader", shared, lasting(long)))
	}
	writer := ask.Place("writer", lasting(long))
	for range 10 {
		later = append(later, ask.Place("reader", shared, lasting(long)))
	}
	require.Eventually(t, l.Contended, patience, time.Millisecond)
	before := b.watches.events.Load()
	release(t, l)
	for _, p := range run {
		defer release(t, granted(t, p))
	}
	time.Sleep(10 * time.Millisecond)
	require.LessOrEqual(t, b.watches.events.Load()-before, int64(len(run)))
	require.Empty(t, writer.Granted())
	for _, p := range later {
		require.Empty(t, p.Granted())
	}
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
	require.True(t, b.engine.Idle())
	place := asker(t, b, "k")
	l := place.Lease("a", lasting(long))
	place.Place("b", lasting(long))
	require.NoError(t, b.Ping(t.Context()))
	release(t, l)
	require.NoError(t, b.Close())
	require.Zero(t, count(t, c, prefix+"/"))
}

// A copy of the process, as one that is restored from a snapshot, knows the same free names. What it asks for is a request of its own,
// and no repeat: neither at once, nor in the queue.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	t.Parallel()
	prefix, addr := newPrefix(), etcdtest.Shared(t).Addr
	b, twin := open(t, addr, prefix), open(t, addr, prefix)
	ask, copied := asker(t, b, "k"), asker(t, twin, "k")
	release(t, ask.Lease("a", lasting(long)))
	ready(t, twin)
	for _, free := range b.names.free {
		for _, name := range free {
			twin.names.put(name)
		}
	}
	l := ask.Lease("a", lasting(long))
	_, _, err := copied.Try("a", lasting(long), func(r *distributed.Request) { r.NoWait = true })
	require.ErrorIs(t, err, distributed.ErrHeld)
	first, second := ask.Place("a", lasting(long)), copied.Place("a", lasting(long))
	release(t, l)
	l = granted(t, first)
	require.Empty(t, second.Granted())
	release(t, l)
	release(t, granted(t, second))
}

// A lock that is used again and again does not leave a deleted key in etcd's index each time; a name whose create may still be
// carried out is not used again.
func TestNamesAreUsedAgain(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	names := map[string]bool{}
	var prev distributed.Lease
	for range 20 {
		prev = ask.Lease("a", lasting(long), func(r *distributed.Request) { r.Prev = prev })
		names[claimOf(prev).name] = true
	}
	require.Len(t, names, 2, "a lease and the one that takes its place")
	a := claimOf(prev)
	a.unsure()
	release(t, prev)
	require.NotEqual(t, a.name, b.names.take(a.name[:len(a.name)-idLength]))
	require.NotEqual(t, a.name, b.names.take(a.name[:len(a.name)-idLength]))
	for range 2 * mostNames {
		b.names.put(b.names.take("/head/"))
		b.names.put(rand.Text() + rand.Text()[:idLength])
	}
	require.LessOrEqual(t, b.names.n, mostNames)
}
