package zklock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// wearing has a key's node worn after so many requests.
func wearing(most int64) Option { return func(s *settings) { s.sequences = most } }

// madeBefore creates the node of the key k with a child that is not ours, so that no server deletes it in between, below a root.
func madeBefore(t *testing.T, addr string) (root string) {
	t.Helper()
	conn := plainConn(t, addr)
	root = newRoot()
	for _, path := range []string{root, root + "/k", root + "/k/foreign"} {
		_, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	return root
}

// Requests of both nodes at a time: the first in line of the worn one has the lock, then those behind it, then those below it, also of
// processes that learn of the next node late.
func TestAWornNodeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	root := madeBefore(t, zktest.Shared(t).Addr) // which has sequence 0
	early, late := open(t, zktest.Shared(t).Addr, root, wearing(3)), open(t, zktest.Shared(t).Addr, root, wearing(3))
	l := asker(t, early, "k").Lease("a", lasting(long))
	last := fence(t, l)
	var places []distributed.Place
	for i, b := range []*Backend{late, early, early, late, early, open(t, zktest.Shared(t).Addr, root, wearing(3))} {
		places = append(places, asker(t, b, "k").Place(fmt.Sprint("b", i), lasting(long)))
	}
	require.Eventually(t, l.Contended, patience, time.Millisecond)
	children, _, err := plainConn(t, zktest.Shared(t).Addr).Children(root + "/k/" + nextName)
	require.NoError(t, err)
	require.Contains(t, children, nextName, "a third node is in use")
	for i, p := range places {
		for _, later := range places[i:] {
			require.Empty(t, later.Granted())
		}
		_, _, err := asker(t, late, "k").Try("c", func(r *distributed.Request) { r.NoWait = true })
		require.ErrorIs(t, err, distributed.ErrHeld)
		release(t, l)
		l = granted(t, p)
		require.Greater(t, fence(t, l), last)
		require.NoError(t, l.Refill(t.Context()))
		for last = fence(t, l); ; { // up to the end of the block
			next, ok := l.NextFence()
			if !ok {
				break
			}
			last = next
		}
	}
	release(t, l)
	found, err := early.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, found.Held())
}

// Readers and the holder beside a worn node: a reader below it joins those above, and a writer below it is seen by them.
func TestReadersOfAWornNode(t *testing.T) {
	t.Parallel()
	root := madeBefore(t, zktest.Shared(t).Addr)
	b, other := open(t, zktest.Shared(t).Addr, root, wearing(2)), open(t, zktest.Shared(t).Addr, root, wearing(2))
	above := asker(t, b, "k").Lease("a", shared, lasting(long))
	below := asker(t, other, "k").Lease("b", shared, lasting(long))
	p := asker(t, other, "k").Place("c", lasting(long))
	require.Eventually(t, above.Contended, patience, time.Millisecond)
	require.Eventually(t, below.Contended, patience, time.Millisecond)
	release(t, above)
	require.Empty(t, p.Granted())
	release(t, below)
	release(t, granted(t, p))
}

// A process that ends between the steps: its worn node, and a next node that nobody has used yet, keep nobody out.
func TestACrashAtAWornNode(t *testing.T) {
	t.Parallel()
	root := madeBefore(t, zktest.Shared(t).Addr)
	b := open(t, zktest.Shared(t).Addr, root, wearing(2))
	l := asker(t, b, "k").Lease("a", lasting(long))
	conn, dir := plainConn(t, zktest.Shared(t).Addr), root+"/k"
	_, err := conn.Create(dir+"/"+head(distributed.Exclusive, parts.Tag("dead"), strings.Repeat("A", idLength)), []byte("dead"),
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = conn.CreateContainer(dir+"/"+nextName, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	p := asker(t, b, "k").Place("b", lasting(long))
	release(t, l)
	release(t, granted(t, p))
	_, _, err = asker(t, open(t, zktest.Shared(t).Addr, root, wearing(2)), "k").Try("c", func(r *distributed.Request) { r.NoWait = true })
	require.NoError(t, err)
}

// A node of that name below one that is not worn, as a late create could make it, has nobody in line. Who used it begins anew.
func TestANextNodeThatCameTooLate(t *testing.T) {
	t.Parallel()
	root := madeBefore(t, zktest.Shared(t).Addr)
	b := open(t, zktest.Shared(t).Addr, root)
	_, err := plainConn(t, zktest.Shared(t).Addr).Create(root+"/k/"+nextName, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	b.useNext(root+"/k", root+"/k/"+nextName)
	_, _, err = b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: ttl})
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	l := asker(t, b, "k").Lease("a", lasting(long))
	require.NotContains(t, claimOf(l).path(), nextName)
	release(t, l)
}

// When a key is not used any more all of its nodes go, and it begins anew.
func TestWornNodesGo(t *testing.T) {
	t.Parallel()
	root := newRoot()
	b := open(t, zktest.Shared(t).Addr, root, wearing(1))
	for range 3 {
		release(t, asker(t, b, "k").Lease("a", lasting(long)))
	}
	left(t, zktest.Shared(t).Addr, root, 0)
	release(t, asker(t, b, "k").Lease("a", lasting(long)))
}

// A real server shortly before, and at, the end of its sequence, where all nodes get the same: one holder at a time, and fences that grow.
func TestTheEndOfTheSequence(t *testing.T) {
	testscope.Long(t, "restarts a server")
	t.Parallel()
	zktest.Shared(t)
	private := zktest.Start(t)
	near, end := madeBefore(t, private.Addr), madeBefore(t, private.Addr)
	private.SetSequences(t, map[string]int32{near + "/k": mostSequences - 5, end + "/k": math.MaxInt32 - 5})
	for _, root := range []string{near, end} {
		b, other := open(t, private.Addr, root), open(t, private.Addr, root)
		last, inside := uint64(0), 0 // guarded by the lock under test
		var all sync.WaitGroup
		for i := range 8 {
			use := map[bool]*Backend{true: b, false: other}[i%2 == 0]
			all.Go(func() {
				for range 10 {
					l, p, err := use.Enter(context.Background(), distributed.Request{Key: "k", Instance: fmt.Sprint("i", i), TTL: long})
					if err == nil && p != nil {
						l = <-p.Granted()
					}
					if err != nil || l == nil {
						t.Errorf("%v, %v", l, err)
						return
					}
					n, _ := l.NextFence()
					if inside++; inside > 1 || n <= last {
						t.Errorf("%d inside, fence %d after %d", inside, n, last)
					}
					last = n
					time.Sleep(time.Millisecond)
					inside--
					if err := l.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
}
