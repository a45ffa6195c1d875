package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

func inCluster(t *testing.T, c *redistest.Cluster) *Backend {
	t.Helper()
	b, err := New(c.Client())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestClusterKeysWithBraces(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	a, b := newUser(t, inCluster(t, c)), newUser(t, inCluster(t, c))
	for _, key := range []string{"s:n:{a}", "s:n:a}b", "s:n:{}", "s:n:}{", "s:n:{{x}}", "s:n:a{b", "s:n:plain", "s:n:{x}:{y}", "s:n:é{ü}"} {
		slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", key)
		for _, k := range keysOf(key, "i") {
			require.Equal(t, slot, c.Nodes[0].Do("CLUSTER", "KEYSLOT", k), "%s of %s", k, key)
		}
		l := a.lease(key)
		p := b.place(key)
		release(t, l)
		release(t, granted(t, p))
	}
}

// TestClusterReshardHasOneEffect moves the slot of a key to and fro while the key goes from hand to hand, so that every
// kind of call meets ASK, TRYAGAIN and MOVED. The fences tell if one of them was done twice or lost.
func TestClusterReshardHasOneEffect(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	const key = "reshard:k:1"
	users := [2]user{newUser(t, inCluster(t, c)), newUser(t, inCluster(t, c))}
	for i := range users {
		users[i] = users[i].lasting(5 * time.Second)
	}
	var l distributed.Lease = users[0].lease(key)
	last := fence(t, l)

	moved := make(chan struct{})
	go func() {
		defer close(moved)
		from, slot := c.Owner(key)
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		for range 4 {
			move(slot, from, to)
			from, to = to, from
			time.Sleep(50 * time.Millisecond)
		}
	}()
	var slowest time.Duration
	turns := 0
	for done := false; !done; turns++ {
		select {
		case <-moved:
			done = true // one more turn
		default:
		}
		start := time.Now()
		p := users[(turns+1)%2].place(key)
		require.NoError(t, l.(*lease).Refill(t.Context()))
		release(t, l)
		l = granted(t, p)
		slowest = max(slowest, time.Since(start))
		n := fence(t, l)
		require.Greater(t, n, last)
		last = n
	}
	release(t, l)
	t.Logf("%d turns", turns)
	inTime(t, "slowest turn in a reshard", slowest, time.Second)
}

// move gives a slot with its keys to another node, the way redis-cli --cluster reshard does.
func move(slot int64, from, to *redistest.Server) {
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID())
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID())
	for { // what is asked for meanwhile is partly here and partly there
		keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
		from.Do("MIGRATE", "127.0.0.1", to.Port, keys[0], 0, 5000)
	}
	time.Sleep(20 * time.Millisecond)
	for _, n := range []*redistest.Server{to, from} {
		n.Do("CLUSTER", "SETSLOT", slot, "NODE", to.ID())
	}
}
