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
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// wearing has a key's node worn after so many requests.
func wearing(most int64) Option { return func(s *settings) { s.sequences = most } }

// madeBefore creates a key's node with a child that is not ours, so that no server deletes it in between.
func madeBefore(t *testing.T, addr, root, key string) {
	t.Helper()
	conn := plainConn(t, addr)
	for _, path := range []string{root, root + "/" + key, root + "/" + key + "/foreign"} {
		_, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
}

// The suite, with lines of a few requests each.
func TestConformanceOfWornNodes(t *testing.T) {
	t.Parallel()
	zktest.Shared(t)
	locktest.Run(t, locktest.Fixture{TTL: suiteTTL, Skip: locktest.Brief, Open: func(t locktest.TB) locktest.Service {
		proxy, root := zktest.NewProxy(t, zktest.Shared(t).Addr), newRoot()
		patient := func(s *settings) { s.patience, s.sequences = suitePatience, 3 }
		return locktest.Service{
			Backend: open(t, proxy.Addr, root, patient),
			Another: func() distributed.Backend { return open(t, proxy.Addr, root, patient) },
			Expire:  func(key string) { expireLine(t, open(t, zktest.Shared(t).Addr, root, patient), key) },
			Cut:     proxy.Stall,
		}
	}})
}

// expireLine deletes the nodes of a key's owners.
func expireLine(t locktest.TB, b *Backend, key string) {
	t.Helper()
	conn := plainConn(t, zktest.Shared(t).Addr)
	v, err := b.line(b.dirOf(key), func(dir string) (got children, err error) {
		got.names, got.stat, err = conn.Children(dir)
		return got, err
	})
	for _, n := range v.q[:driver.Admitted(v.q, false)] {
		if err == nil {
			err = conn.Delete(b.dirOf(key)+"/"+n.name, -1)
		}
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Requests of both nodes at a time: the first in line of the worn one has the lock, then those behind it, then those below it, also of
// processes that learn of the next node late.
func TestAWornNodeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	root := newRoot()
	madeBefore(t, zktest.Shared(t).Addr, root, "k") // which has sequence 0
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
	root := newRoot()
	madeBefore(t, zktest.Shared(t).Addr, root, "k")
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
	root := newRoot()
	madeBefore(t, zktest.Shared(t).Addr, root, "k")
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
	root := newRoot()
	madeBefore(t, zktest.Shared(t).Addr, root, "k")
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
	b, conn := open(t, zktest.Shared(t).Addr, root, wearing(1)), plainConn(t, zktest.Shared(t).Addr)
	for range 3 {
		release(t, asker(t, b, "k").Lease("a", lasting(long)))
	}
	require.Eventually(t, func() bool {
		names, _, err := conn.Children(root)
		return err == nil && len(names) == 0
	}, patience, 10*time.Millisecond)
	release(t, asker(t, b, "k").Lease("a", lasting(long)))
}

// A real server shortly before, and at, the end of its sequence, where all nodes get the same: one holder at a time, and fences that grow.
func TestTheEndOfTheSequence(t *testing.T) {
	testscope.Long(t, "restarts a server")
	t.Parallel()
	zktest.Shared(t)
	private := zktest.Start(t)
	root := newRoot()
	madeBefore(t, private.Addr, root, "near")
	madeBefore(t, private.Addr, root+"/at", "end")
	private.SetSequences(t, map[string]int32{root + "/near": mostSequences - 5, root + "/at/end": math.MaxInt32 - 5})
	for _, at := range []struct{ root, key string }{{root, "near"}, {root + "/at", "end"}} {
		b, other := open(t, private.Addr, at.root), open(t, private.Addr, at.root)
		last, inside := uint64(0), 0 // guarded by the lock under test
		var all sync.WaitGroup
		for i := range 8 {
			use := map[bool]*Backend{true: b, false: other}[i%2 == 0]
			all.Go(func() {
				for range 10 {
					l, p, err := use.Enter(context.Background(), distributed.Request{Key: at.key, Instance: fmt.Sprint("i", i), TTL: long})
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
