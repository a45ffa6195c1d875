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

// What a detached lease keeps at etcd: a reader of a version that knows none is turned away, how long it lasts is known, and an adoption
// ends what it kept. A Break of what was found before does not end the adopter's lease.
func TestWhatADetachedLeaseKeeps(t *testing.T) {
	t.Parallel()
	server, prefix, id := etcdtest.Shared(t), newPrefix(), rand.Text()
	b, c := open(t, server.Addr, prefix), plainClient(t, server.Addr)
	l := asker(t, b, "k").Lease("a", lasting(long))
	old, foreign := b.dirOf("k")+"s/"+parts.Tag("old")+"-"+rand.Text()[:idLength], b.dirOf("k")+"s/note"
	for _, key := range []string{old, foreign} {
		_, err := c.Put(t.Context(), key, "")
		require.NoError(t, err)
	}
	reader := asker(t, b, "k").Place("new", shared, lasting(long))
	before, err := b.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, b.Detach(t.Context(), l, id, long))
	require.Zero(t, count(t, c, old))
	require.EqualValues(t, 1, count(t, c, foreign))
	moved, err := c.Get(t.Context(), b.dirOf("k")+movedName)
	require.NoError(t, err)
	own := clientv3.LeaseID(moved.Kvs[0].Lease)
	require.NotEqual(t, claimOf(l).s.lease(), own)
	found, err := b.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.InDelta(t, long, found.Holders[0].Left, float64(ttl))

	l, err = b.Adopt(t.Context(), distributed.Request{Key: "k", Instance: "b", TTL: long}, id)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		left, err := c.TimeToLive(t.Context(), own)
		return err == nil && left.TTL < 0
	}, patience, ttl/100)
	_, err = b.Break(t.Context(), before, "me", "a test")
	require.ErrorIs(t, err, distributed.ErrNotHeld)
	_, err = b.Break(t.Context(), found, "me", "a test")
	require.ErrorIs(t, err, distributed.ErrNotHeld)
	release(t, l)
	release(t, granted(t, reader))
	require.Eventually(t, func() bool { return count(t, c, b.dirOf("k")) == 1 }, patience, ttl/100)
}
