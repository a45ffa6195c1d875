package zklock

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// ensemble starts three servers, and returns the leader and the followers.
func ensemble(t *testing.T, cuttable bool) (leader *zktest.Server, followers []*zktest.Server) {
	t.Helper()
	zktest.Shared(t)
	all := zktest.StartEnsemble(t, cuttable)
	i := slices.IndexFunc(all, func(s *zktest.Server) bool { return s.Mode() == "leader" })
	require.GreaterOrEqual(t, i, 0, "no leader")
	return all[i], slices.Delete(slices.Clone(all), i, i+1)
}

func openAll(t *testing.T, root string, servers ...*zktest.Server) *Backend {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	b, err := New(addrs, WithRoot(root))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestEnsemble(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	leader, followers := ensemble(t, false)
	t.Run("a server lags", func(t *testing.T) { lagging(t, leader, followers) })
	t.Run("the leader is lost", func(t *testing.T) { leaderLost(t, leader, followers) })
}

// A server that lags shows holders that have gone, so it is asked to catch up before a refusal, and shows nobody before us who is
// there.
func lagging(t *testing.T, leader *zktest.Server, followers []*zktest.Server) {
	root := newRoot()
	b, other := openAll(t, root, followers[0]), openAll(t, root, leader)
	here, there := asker(t, b, "k"), asker(t, other, "k")
	noWait := func(r *distributed.Request) { r.NoWait = true }
	last := uint64(0)
	for range 100 {
		release(t, there.Lease("a"))
		l := here.Lease("b", noWait) // at once, whatever the follower has heard
		n := fence(t, l)
		require.Greater(t, n, last)
		last = n
		p := there.Place("a")
		release(t, l)
		release(t, granted(t, p))
	}
}

// The lease outlives the election, and fences grow over it.
func leaderLost(t *testing.T, leader *zktest.Server, followers []*zktest.Server) {
	root, long := newRoot(), lasting(long)
	b, other := openAll(t, root, leader, followers[0], followers[1]), openAll(t, root, leader, followers[0], followers[1])
	l := asker(t, b, "k").Lease("a", long)
	before := fence(t, l)
	p := asker(t, other, "k").Place("b", long)
	claimed(t, l)
	leader.Kill()
	ready(t, b)
	ready(t, other)
	require.Eventually(t, l.Healthy, patience, time.Millisecond)
	require.Empty(t, p.Granted())
	require.NoError(t, l.Refill(t.Context()))
	after := fence(t, l)
	require.Greater(t, after, before)
	release(t, l)
	next := granted(t, p)
	require.NotNil(t, next)
	require.Greater(t, fence(t, next), after)
	release(t, next)
}

// A follower that has lost its leader goes on answering reads for a while, and the leader ends the sessions of its clients.
// A holder that takes an answer for a proof would go on working.
func TestAFollowerWithoutLeaderProvesNothing(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	leader, followers := ensemble(t, true)
	root := newRoot()
	b, other := openAll(t, root, followers[0]), openAll(t, root, leader, followers[1])
	l := asker(t, b, "k").Lease("a")
	p := asker(t, other, "k").Place("b", lasting(long))
	require.Eventually(t, func() bool { return distributed.Left(time.Now(), l.Until()) > ttl/2 }, patience, time.Millisecond)
	followers[0].CutOffFromEnsemble(true)
	defer followers[0].CutOffFromEnsemble(false)
	next := granted(t, p)
	require.NotNil(t, next)
	early := time.Until(l.Until())
	assert.True(t, distributed.Over(time.Now(), l.Until()), "let in %v before the lease of the one before had expired", early)
	lost(t, l)
	release(t, next)
}
