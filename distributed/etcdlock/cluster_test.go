package etcdlock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
)

// cluster is three servers, and a client of all of them.
type cluster struct {
	servers []*etcdtest.Server
	addrs   []string
	client  *clientv3.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{servers: etcdtest.StartCluster(t)}
	for _, s := range c.servers {
		c.addrs = append(c.addrs, s.Addr)
	}
	c.client = plainClient(t, c.addrs...)
	return c
}

func (c *cluster) open(t *testing.T, prefix string) *Backend {
	t.Helper()
	return open(t, strings.Join(c.addrs, ","), prefix)
}

// leader returns the place of the leader in servers, when there is one.
func (c *cluster) leader(t *testing.T) (leader int) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader = slices.IndexFunc(c.addrs, func(addr string) bool {
			got, err := c.client.Status(t.Context(), addr)
			return err == nil && got.Leader == got.Header.MemberId
		})
		return leader >= 0
	}, patience, 50*time.Millisecond)
	return leader
}

// moveLeader has the leader give its role to another member.
func (c *cluster) moveLeader(t *testing.T) {
	t.Helper()
	i := c.leader(t)
	to, err := c.client.Status(t.Context(), c.addrs[(i+1)%len(c.addrs)])
	require.NoError(t, err)
	_, err = plainClient(t, c.addrs[i]).MoveLeader(t.Context(), to.Header.MemberId)
	require.NoError(t, err)
	require.NotEqual(t, i, c.leader(t))
}

// Whichever member is lost, the lease goes on, the queue is served, and fences grow; so after the leader has changed.
func TestMembersAreLostAndLeadersChange(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	t.Parallel()
	c, prefix := newCluster(t), newPrefix()
	b, other := c.open(t, prefix), c.open(t, prefix)
	long := lasting(20 * time.Second)
	ask, there := asker(t, b, "k"), asker(t, other, "k")
	l, last := ask.Lease("a", long), uint64(0)
	through := func(t *testing.T, fault func()) {
		require.Greater(t, fence(t, l), last)
		p := there.Place("b", long)
		proven := claimOf(l).s.Until
		fault()
		until := proven()
		require.Eventually(t, func() bool { return l.Healthy() && proven().After(until) }, patience, time.Millisecond)
		require.Empty(t, p.Granted())
		require.Eventually(t, func() bool { return l.Refill(t.Context()) == nil }, patience, time.Millisecond)
		last = fence(t, l)
		release(t, l)
		l = granted(t, p)
		require.NotNil(t, l)
		ask, there = there, ask
	}
	for _, s := range c.servers {
		t.Run("member lost", func(t *testing.T) {
			through(t, func() { s.Kill() })
			s.Restart()
		})
	}
	t.Run("member hangs", func(t *testing.T) {
		s := c.servers[(c.leader(t)+1)%len(c.servers)]
		through(t, func() { s.Pause() })
		s.Resume()
	})
	t.Run("leader moved", func(t *testing.T) { through(t, func() { c.moveLeader(t) }) })
	t.Run("leader killed", func(t *testing.T) {
		s := c.servers[c.leader(t)]
		through(t, func() { s.Kill() })
		s.Restart()
	})
	t.Run("leader hangs", func(t *testing.T) {
		s := c.servers[c.leader(t)]
		through(t, func() { s.Pause() })
		s.Resume()
	})
	require.Greater(t, fence(t, l), last)
	release(t, l)
}

// Without a quorum nobody gets a lock, and holders know their ends by their own clocks; when it is back, locks are acquired, and
// nothing that was given up meanwhile has stayed.
func TestQuorumLostAndBack(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	c, prefix := newCluster(t), newPrefix()
	b, other := c.open(t, prefix), c.open(t, prefix)
	ask, there := asker(t, b, "k"), asker(t, other, "k")
	l := ask.Lease("a")
	before := fence(t, l)
	release(t, there.Lease("b", func(r *distributed.Request) { r.Key = "warm" }))
	p := there.Place("b")
	claimed(t, l)
	c.servers[0].Kill()
	c.servers[1].Kill()
	_, _, err := b.Enter(t.Context(), distributed.Request{Key: "free", Instance: "a", TTL: ttl})
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	lost(t, l)
	assert.True(t, distributed.Over(time.Now(), l.Until()))
	require.Empty(t, p.Granted())
	c.servers[0].Restart()
	c.servers[1].Restart()
	ready(t, b)
	ready(t, other)
	next := granted(t, p)
	if next == nil { // its etcd lease has expired, too
		var again distributed.Place
		if next, again = there.Enter("b"); again != nil {
			next = granted(t, again)
		}
	}
	require.NotNil(t, next)
	require.Greater(t, fence(t, next), before)
	release(t, next)
	require.Eventually(t, func() bool { return count(t, c.client, b.dirOf("")) == 0 && count(t, c.client, b.dirOf("free")) == 0 },
		patience, 20*time.Millisecond)
}
