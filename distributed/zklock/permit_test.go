package zklock

import (
	"crypto/rand"
	"testing"

	"github.com/go-zookeeper/zk"
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

// A limit above what is watched one by one.
func TestManyPermits(t *testing.T) {
	testlocker.ManyPermits(t, asker(t, open(t, zktest.Shared(t).Addr, newRoot()), "k"), driver.MostFollowed+8)
}

// A request of a version with another format is refused by name, and leaves nothing.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	addr, root := zktest.Shared(t).Addr, newRoot()
	b := open(t, addr, root)
	conn := plainConn(t, addr)
	testlocker.RefusesOtherFormats(t, asker(t, b, ""), func(key string) {
		first := asker(t, b, key).Lease("first") // the key's node is there, and stays
		_, err := conn.Create(b.dirOf(key)+"/x9-P-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		testlocker.Release(t, first)
	})
	_, err := b.Inspect(t.Context(), "other-0")
	require.ErrorContains(t, err, "format 9")
	left(t, addr, b.dirOf("other-0"), 1)
}
