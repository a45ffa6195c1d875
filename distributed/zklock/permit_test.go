package zklock

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/zktest"
)

func TestLimitsAreInTheIds(t *testing.T) {
	for want, limit := range map[int]int{0: 0, 1: 1, 255: 255, mostLimit: mostLimit + 5} {
		id := idOf(rand.Text(), limit)
		require.Len(t, id, idLength)
		n, ok := parseNode(head(distributed.Shared, parts.Tag("i"), id) + "0000000007")
		require.True(t, ok)
		require.True(t, n.Shared)
		require.Equal(t, want, n.Limit)
	}
}

// A permit that is released wakes few of those that wait, however many there are.
func TestReleasedPermitWakesFew(t *testing.T) {
	t.Parallel()
	const limit, waiters = 4, 20
	root := newRoot()
	b, other := open(t, zktest.Shared(t).Addr, root), open(t, zktest.Shared(t).Addr, root)
	var held []distributed.Lease
	for i := range limit {
		held = append(held, asker(t, other, "k").Lease(fmt.Sprint("h", i), permits(limit), lasting(long)))
	}
	var places []distributed.Place
	for i := range waiters {
		places = append(places, asker(t, b, "k").Place(fmt.Sprint("w", i), permits(limit), lasting(long)))
	}
	woken := func(l distributed.Lease) int64 {
		before := b.counts.events.Load()
		release(t, l)
		held, places = append(held, granted(t, places[0])), places[1:]
		time.Sleep(20 * time.Millisecond) // for events that must not come
		return b.counts.events.Load() - before
	}
	require.Equal(t, "h0 and 3 more", places[0].(distributed.HolderTeller).Holder())
	youngest := held[3]
	require.LessOrEqual(t, woken(held[0]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[1]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(youngest), int64(limit))
	for _, p := range places {
		require.NoError(t, p.Leave(t.Context()))
	}
	for _, l := range append(held[2:3], held[4:]...) {
		release(t, l)
	}
}

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	testlocker.ManyPermits(t, asker(t, open(t, zktest.Shared(t).Addr, newRoot()), "k"), driver.MostFollowed+8)
}
