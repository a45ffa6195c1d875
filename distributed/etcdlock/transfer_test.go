package etcdlock

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/parts"
)

// What a detached lease keeps at etcd. A reader and a permit of a version that knows none are turned away, and those that come later find a
// writer before them, whose key is new. An adoption ends the etcd lease, and no Break of what was found before ends the adopter's.
func TestWhatADetachedLeaseKeeps(t *testing.T) {
	t.Parallel()
	server, prefix, id := etcdtest.Shared(t), newPrefix(), rand.Text()
	b, c := open(t, server.Addr, prefix), plainClient(t, server.Addr)
	dir := b.dirOf("k")
	l := asker(t, b, "k").Lease("a", lasting(long))
	own := clientv3.LeaseID(claimOf(l).s.lease())
	var old []string
	for _, letter := range []string{"s/", "xp/8/"} {
		old = append(old, dir+letter+parts.Tag("old")+"-"+rand.Text()[:idLength])
	}
	for _, key := range append(old, dir+"s/note") {
		_, err := c.Put(t.Context(), key, "")
		require.NoError(t, err)
	}
	reader := asker(t, b, "k").Place("new", shared, lasting(long))
	beside := func() clientv3.LeaseID {
		got, err := c.Get(t.Context(), dir+"x/"+movedTag, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		require.EqualValues(t, 1, got.Kvs[0].Version)
		return clientv3.LeaseID(got.Kvs[0].Lease)
	}
	before, err := b.Inspect(t.Context(), "k")
	require.NoError(t, err)

	require.NoError(t, b.Detach(t.Context(), l, id, long))
	for _, key := range old {
		require.Zero(t, count(t, c, key))
	}
	require.EqualValues(t, 1, count(t, c, dir+"s/note"), "somebody else's")
	detached := beside()
	require.NotContains(t, []clientv3.LeaseID{0, own}, detached)
	found, err := b.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.InDelta(t, long, found.Holders[0].Left, float64(ttl))

	l, err = b.Adopt(t.Context(), distributed.Request{Key: "k", Instance: "b", TTL: long}, id)
	require.NoError(t, err)
	require.Equal(t, own, beside())
	require.Eventually(t, func() bool {
		left, err := c.TimeToLive(t.Context(), detached)
		return err == nil && left.TTL < 0
	}, patience, ttl/100)
	for _, one := range []distributed.Inspection{before, found} {
		_, err = b.Break(t.Context(), one, "me", "a test")
		require.ErrorIs(t, err, distributed.ErrNotHeld)
	}
	require.NoError(t, b.Detach(t.Context(), l, rand.Text(), long))
	require.NotContains(t, []clientv3.LeaseID{0, own, detached}, beside())
	breaks(t, b, "k")
	require.Zero(t, count(t, c, dir+"x/"))
	release(t, granted(t, reader))
}
