package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
)

// The key that a waiter waits for is gone before its watch has begun: the waiter looks, long before H.
func TestAWatchThatBeginsLate(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("a", lasting(long))
	p := ask.Place("b", lasting(long))
	c := claimOf(p)
	c.mu.Lock()
	c.unwatch()
	old := view{revision: c.revision, before: []string{c.follows}}
	c.mu.Unlock()
	release(t, l)
	c.follow(&old)
	release(t, granted(t, p))
}

// Others have entered before the watch of the holder has begun, as all do at the start of a rush: it looks.
func TestAHoldersWatchThatBeginsLate(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("a", lasting(long))
	c := claimOf(l)
	c.a.LookIn(time.Hour)
	c.mu.Lock()
	c.unwatch()
	c.mu.Unlock()
	p := ask.Place("b", lasting(long))
	require.False(t, l.Contended())
	c.mu.Lock()
	c.seen = c.revision
	c.watchRivals(false)
	c.mu.Unlock()
	require.Eventually(t, l.Contended, distributed.RenewInterval(long)/2, time.Millisecond)
	release(t, l)
	release(t, granted(t, p))
}

// A member that lags delivers events from before what the owner of a watch has seen: of an earlier use of its name.
func TestEventsFromBeforeTheWatch(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	l := ask.Lease("a", lasting(long))
	a := claimOf(l)
	require.Eventually(t, func() bool { return len(b.watches.ids()) == 1 }, patience, time.Millisecond)
	w, news := b.watches.took(deletion(b.watches.ids()[0], a.name, a.revision-1))
	require.Nil(t, w)
	require.Equal(t, watchQuiet, news)
	w, news = b.watches.took(deletion(b.watches.ids()[0], a.name, a.revision+1))
	require.NotNil(t, w)
	require.Equal(t, watchFired, news)
	release(t, l)
}

func deletion(id int64, name string, revision int64) *pb.WatchResponse {
	return &pb.WatchResponse{WatchId: id, Header: &pb.ResponseHeader{Revision: revision}, Events: []*mvccpb.Event{
		{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(name), ModRevision: revision}},
	}}
}
