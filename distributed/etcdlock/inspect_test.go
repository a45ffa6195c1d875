package etcdlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
)

// More readers of one lock than a page of List reads and than a transaction of Break ends.
func TestBreakOfManyReaders(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	t.Parallel()
	const readers = listedAtOnce + brokenAtOnce/2
	b := onShared(t)
	for _, key := range []string{"shop:a", "shop:c"} {
		defer release(t, asker(t, b, key).Lease("i", lasting(long)))
	}
	held := make([]distributed.Lease, readers)
	each(readers, 16, func(i int) {
		held[i] = asker(t, b, "shop:b").Lease(fmt.Sprint("reader-", i), shared, lasting(ttl))
	})
	found := map[string]distributed.Inspection{}
	pages := 0
	for cursor, next := "", "x"; next != ""; cursor = next {
		var page []distributed.Inspection
		var err error
		page, next, err = b.List(t.Context(), "shop:", cursor, 10)
		require.NoError(t, err)
		for _, one := range page {
			found[one.Key] = one
		}
		pages++
	}
	require.Len(t, found, 3)
	require.Equal(t, 3, pages)
	require.Equal(t, readers-1, found["shop:b"].MoreHolders)
	writer := asker(t, b, "shop:b").Place("writer", lasting(long))
	record, err := b.Break(t.Context(), found["shop:b"], "me", "a test")
	require.NoError(t, err)
	l := granted(t, writer)
	require.NotNil(t, l)
	require.Greater(t, fence(t, l), record.Fence)
	for _, one := range held {
		lost(t, one)
	}
	release(t, l)
}

// A record of a Break goes by itself, and a Break that is refused leaves none.
func TestBreakIsForgotten(t *testing.T) {
	t.Parallel()
	server, prefix := etcdtest.Shared(t), newPrefix()
	b, c := open(t, server.Addr, prefix), plainClient(t, server.Addr)
	l := asker(t, b, "a/b").Lease("i", lasting(long))
	found, err := b.Inspect(t.Context(), "a/b")
	require.NoError(t, err)
	release(t, l)
	_, err = b.Break(t.Context(), found, "me", "a test")
	require.ErrorIs(t, err, distributed.ErrNotHeld)
	require.Zero(t, count(t, c, prefix+"/"+brokenName))
	l = asker(t, b, "a/b").Lease("i", lasting(long))
	breaks(t, b, "a/b")
	lost(t, l)
	got, err := c.Get(t.Context(), prefix+"/"+brokenName+"a%2Fb")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ttl, err := c.Lease.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
	require.NoError(t, err)
	require.InDelta(t, distributed.BrokenMemory/time.Second, ttl.GrantedTTL, 1)
}
