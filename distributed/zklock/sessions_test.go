package zklock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
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
	failed := testlocker.Counted(t, b, func(e distributed.Exchange) bool { return e.Err != nil })
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

// A server that has as many connections as it allows closes each further one without a word. Callers read so, in their time.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t, "-Dzookeeper.maxCnxns=1")
	first := open(t, server.Addr, newRoot())
	testlocker.Release(t, asker(t, first, "k").Lease("a"))
	second := open(t, server.Addr, newRoot())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, _, err := second.Enter(ctx, distributed.Request{Key: "k", Instance: "b", TTL: long})
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "maxClientCnxns")
	testscope.InTime(t, time.Since(began), 2*time.Second, "the caller's time")
	t.Run("until one is closed", func(t *testing.T) {
		testscope.Long(t, "has failed by chance: see CONTRIBUTING.md")
		require.NoError(t, first.Close())
		require.Eventually(t, func() bool { // the server counts the closed connection until it has noticed
			l, _, err := asker(t, second, "k").Try("b")
			return err == nil && l.Release(t.Context()) == nil
		}, patience, time.Millisecond)
	})
}

// A quota that is used up is named.
func TestQuotaIsUsedUp(t *testing.T) {
	t.Parallel()
	server, root := zktest.Start(t, "-Dzookeeper.enforceQuota=true"), newRoot()
	b, conn := open(t, server.Addr, root), plainConn(t, server.Addr)
	testlocker.Release(t, asker(t, b, "k").Lease("a"))
	for _, node := range [][2]string{
		{"", ""}, {"/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1"}, {"/zookeeper_stats", "count=9,bytes=9"},
	} {
		_, err := conn.Create("/zookeeper/quota"+root+node[0], []byte(node[1]), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	_, _, err := asker(t, b, "k").Try("a")
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "quota")
}
