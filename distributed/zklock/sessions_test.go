package zklock

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/zktest"
)

// The handshake of another connection is no proof, until a sync is answered later: a leader that was stopped, and replaced, answers it.
func TestAHandshakeIsNoProof(t *testing.T) {
	t.Parallel()
	b, _, proxy := cutOff(t)
	s := claimOf(asker(t, b, "k").Lease("a", lasting(long))).s
	proxy.Stall(true) // no sync is answered from here on
	sent := time.Now()
	s.opened(sent, s.timeout())
	s.setUp(true)
	require.Eventually(t, func() bool { return s.alive.Load().last.Load().Equal(sent) }, patience, time.Millisecond, "it counts as a sync")
	require.True(t, s.Until().Before(distributed.Validity(sent, s.timeout())))
}

// The names of all keys are more than a connection for leases takes. They come in pages, and no lease notices.
func TestListOfManyKeys(t *testing.T) {
	t.Parallel()
	root := newRoot()
	b, conn := open(t, zktest.Shared(t).Addr, root), plainConn(t, zktest.Shared(t).Addr)
	held := []distributed.Lease{asker(t, b, "held").Lease("a", lasting(long)), asker(t, b, "held2").Lease("a", lasting(long))}
	name := strings.Repeat("k", 512)
	for i := 0; i*len(name) <= receiveBuffer; {
		var creates []any
		for range 200 {
			i++
			creates = append(creates, &zk.CreateRequest{Path: fmt.Sprintf("%s/%s-%d", root, name, i), Acl: b.set.acl})
		}
		_, err := conn.Multi(creates...)
		require.NoError(t, err)
	}
	var failed atomic.Int64
	defer b.Observe(func(e distributed.Exchange) {
		if e.Err != nil {
			failed.Add(1)
		}
	})()
	var found []string
	for cursor, pages := "", 0; cursor != "" || pages == 0; pages++ {
		page, next, err := b.List(t.Context(), "held", cursor, 1)
		require.NoError(t, err)
		for _, one := range page {
			found = append(found, one.Key)
		}
		cursor = next
	}
	require.Equal(t, []string{"held", "held2"}, found)
	require.Zero(t, failed.Load())
	for _, l := range held {
		require.True(t, l.Healthy())
		release(t, l)
	}
}
