package etcdlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
)

// A permit that is released wakes few of those that wait, however many there are.
func TestReleasedPermitWakesFew(t *testing.T) {
	t.Parallel()
	const limit, waiters = 4, 20
	server, prefix := etcdtest.Shared(t), newPrefix()
	b, other := open(t, server.Addr, prefix), open(t, server.Addr, prefix)
	var held []distributed.Lease
	for i := range limit {
		held = append(held, asker(t, other, "k").Lease(fmt.Sprint("h", i), permits(limit), lasting(long)))
	}
	var places []distributed.Place
	for i := range waiters {
		places = append(places, asker(t, b, "k").Place(fmt.Sprint("w", i), permits(limit), lasting(long)))
	}
	require.LessOrEqual(t, len(b.watches.ids()), limit*waiters)
	woken := func(l distributed.Lease) int64 {
		time.Sleep(watchPause * 20) // what the watches have missed at their beginning is looked at
		before := b.watches.events.Load()
		release(t, l)
		next := granted(t, places[0])
		held, places = append(held, next), places[1:]
		time.Sleep(watchPause * 20)
		return b.watches.events.Load() - before
	}
	require.LessOrEqual(t, woken(held[0]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[1]), int64(1), "the oldest")
	require.LessOrEqual(t, woken(held[len(held)-1]), int64(limit), "the youngest")
	for _, p := range places {
		require.NoError(t, p.Leave(t.Context()))
	}
	for _, l := range append(held[2:len(held)-2], held[len(held)-1]) {
		release(t, l)
	}
}

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	testlocker.ManyPermits(t, asker(t, onShared(t), "k"), driver.MostFollowed+8)
}
