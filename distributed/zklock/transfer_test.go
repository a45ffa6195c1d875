package zklock

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/zktest"
)

const brief = 100 * time.Millisecond

// detached detaches a lease of the key k for a while, and returns its id.
func detached(t *testing.T, b *Backend, lasts time.Duration) (id string) {
	t.Helper()
	id = rand.Text()
	require.NoError(t, b.Detach(t.Context(), asker(t, b, "k").Lease("a", lasting(long)), id, lasts))
	return id
}

// The time of a detached lease is over, and no process waits: who asks with NoWait, or for the lease itself, finds that out.
func TestADetachedLeaseExpiresWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	noWait := func(r *distributed.Request) { r.NoWait = true }
	id := detached(t, b, long)
	_, _, err := asker(t, b, "k").Try("b", noWait)
	require.ErrorIs(t, err, distributed.ErrHeld)
	require.NoError(t, b.Discard(t.Context(), distributed.Request{Key: "k", Instance: "b", TTL: long}, id))

	for _, kind := range []func(*distributed.Request){noWait, shared} {
		detached(t, b, brief)
		time.Sleep(2 * brief)
		release(t, asker(t, b, "k").Lease("b", noWait, kind, lasting(long)))
	}
	id = detached(t, b, brief)
	time.Sleep(2 * brief)
	_, err = b.Adopt(t.Context(), distributed.Request{Key: "k", Instance: "b", TTL: long}, id)
	require.ErrorIs(t, err, distributed.ErrLeaseLost)
}

// A waiter of a version without detached leases takes the node that stands in for a holder, and does not delete it. Who waits behind that
// does, in time.
func TestADetachedLeaseExpiresBeforeAnOlderVersion(t *testing.T) {
	t.Parallel()
	root, conn := newRoot(), plainConn(t, zktest.Shared(t).Addr)
	b := open(t, zktest.Shared(t).Addr, root)
	detached(t, b, brief)
	name := root + "/k/" + head(distributed.Exclusive, parts.Tag("old"), rand.Text()[:idLength])
	old, err := conn.Create(name, []byte("old"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	p := asker(t, b, "k").Place("b", lasting(long))
	require.Eventually(t, func() bool {
		children, _, err := conn.Children(root + "/k")
		return err == nil && !slices.ContainsFunc(children, func(name string) bool {
			n, _ := parseNode(name)
			return n.standsIn()
		})
	}, patience, 10*time.Millisecond)
	require.Empty(t, p.Granted())
	require.NoError(t, conn.Delete(old, -1))
	release(t, granted(t, p))
}
