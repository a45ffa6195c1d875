package etcdlock

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
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

// A writer that has left leaves the readers as they were: they hear of it at once, and not at their next look.
func TestALeaseIsNotContendedAfterTheWaiterHasLeft(t *testing.T) {
	t.Parallel()
	prefix, addr := newPrefix(), etcdtest.Shared(t).Addr
	b, other := open(t, addr, prefix), open(t, addr, prefix)
	l := asker(t, b, "k").Lease("a", shared, lasting(long))
	leave := func(p distributed.Place, holder distributed.Lease) {
		require.Eventually(t, holder.Contended, patience, time.Millisecond)
		require.NoError(t, p.Leave(t.Context()))
		require.Eventually(t, func() bool { return !holder.Contended() }, patience, time.Millisecond)
	}
	for range 3 {
		leave(asker(t, other, "k").Place("b", lasting(long)), l)
	}
	release(t, l)

	l = asker(t, other, "k").Lease("b", lasting(long)) // readers that are let in before a writer
	reader := asker(t, b, "k").Place("a", shared, lasting(long))
	writer := asker(t, other, "k").Place("b", lasting(long))
	release(t, l)
	l = granted(t, reader)
	leave(writer, l)
	leave(asker(t, other, "k").Place("b", lasting(long)), l)
	release(t, l)

	l = asker(t, b, "k").Lease("a", permits(1), lasting(long))
	leave(asker(t, other, "k").Place("b", lasting(long)), l)
	release(t, l)
}

// A write of somebody else's between a look and its watch costs no round of the server's, 100 ms each, in which it brings watches up
// to date that begin in the past. A busy machine gets three tries.
func TestHandOversBesideOtherWrites(t *testing.T) {
	testscope.Long(t, "measures")
	t.Parallel()
	const limit = 40 * time.Millisecond
	server, prefix := etcdtest.Start(t), newPrefix()
	b, other := open(t, server.Addr, prefix), open(t, server.Addr, prefix)
	cost := limit
	for try := 0; try < 3 && cost >= limit; try++ {
		quiet := handOver(t, b, other)
		stop := loadWith(t, server.Addr, 1)
		cost = handOver(t, b, other) - quiet
		stop()
		t.Logf("%v, and %v more beside other writes", quiet, cost)
	}
	require.Less(t, cost, limit)
}

// handOver returns the median time that a hand-over takes.
func handOver(t *testing.T, b, other *Backend) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 15 {
		l := asker(t, b, "k").Lease("a", lasting(long))
		p := asker(t, other, "k").Place("b", lasting(long))
		time.Sleep(2 * time.Millisecond) // the watch has been asked for
		start := time.Now()
		release(t, l)
		next := granted(t, p)
		took = append(took, time.Since(start))
		release(t, next)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
