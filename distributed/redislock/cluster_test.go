package redislock

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// TestTheDocumentedACLLineIsEnoughInACluster: with what the page adds for one.
func TestTheDocumentedACLLineIsEnoughInACluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	var o redis.Options
	for _, n := range c.Nodes {
		n.AddUser(t, "redis.md", "shop", "+cluster|slots")(&o)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: o.Username, Password: o.Password})
	t.Cleanup(func() { _ = client.Close() })
	b := with(t, client, WithSystem("shop"))
	require.NoError(t, b.Ping(t.Context()))
	for i := range 9 {
		l := newUser(t, b).lease(fmt.Sprint("shop:product:", i))
		passOn(t, l, newUser(t, b).place(fmt.Sprint("shop:product:", i)))
	}
	for _, n := range c.Nodes {
		require.Empty(t, n.Do("ACL", "LOG"), "nothing was refused")
	}
}

// TestClusterReshardHasOneEffect moves the slot of a key to and fro while the key goes from hand to hand, so that every
// kind of call meets ASK, TRYAGAIN and MOVED. The fences tell if one of them was done twice or lost.
func TestClusterReshardHasOneEffect(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	const key = "reshard:k:1"
	users := [2]user{newUser(t, with(t, c.Client())), newUser(t, with(t, c.Client()))}
	for i := range users {
		users[i] = users[i].lasting(5 * time.Second)
	}
	var l distributed.Lease = users[0].lease(key)
	last := fence(t, l)

	moved := make(chan struct{})
	go func() {
		defer close(moved)
		slot, from, to := aMove(c, key)
		for range 4 {
			move(slot, from, to, 5*time.Millisecond)
			from, to = to, from
			time.Sleep(50 * time.Millisecond)
		}
	}()
	var slowest time.Duration
	turns, began := 0, time.Now()
	for done := false; !done; turns++ {
		select {
		case <-moved:
			done = true // one more turn
		default:
		}
		start := time.Now()
		p := users[(turns+1)%2].place(key)
		require.NoError(t, l.Refill(t.Context()))
		release(t, l)
		l = granted(t, p)
		slowest = max(slowest, time.Since(start))
		n := fence(t, l)
		require.Greater(t, n, last)
		last = n
	}
	release(t, l)
	t.Logf("%d turns", turns)
	inTimeSince(t, began, "slowest turn in a reshard", slowest, time.Second)
}

// TestAMovedSlotCostsNoLease: from the first moment of a move to the last, scripts with several keys are answered TRYAGAIN.
// A lease was once lost if that took two thirds of T, though nobody else wanted it, and an Enter failed after W.
func TestAMovedSlotCostsNoLease(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	for name, mode := range map[string]func(*distributed.Request){"exclusive": exclusive, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			key := key(t)
			u, other := newUser(t, with(t, c.Client())).lasting(time.Second), newUser(t, with(t, c.Client())).lasting(time.Second)
			slot, from, to := aMove(c, key)
			for i := range 10 {
				from.Do("SET", fmt.Sprintf("data:{%s}:%d", key, i), "x")
			}
			leases := []*lease{u.lease(key, mode)}
			if name == "shared" {
				leases = append(leases, newUser(t, u.b).lasting(time.Second).lease(key, mode))
			}
			time.Sleep(time.Second / 3) // claimed
			entered := make(chan error, 1)
			time.AfterFunc(100*time.Millisecond, func() {
				l, p, err := other.enter(t.Context(), key)
				if err == nil && (l != nil || p.Leave(t.Context()) != nil) {
					err = errors.New("there was a lease for it")
				}
				entered <- err
			})
			move(slot, from, to, 200*time.Millisecond) // of 13 or 14 keys
			require.NoError(t, <-entered, "an Enter waits")
			for _, l := range leases {
				release(t, l) // which says so if it was lost
			}
		})
	}
}

// aMove is one of the key's slot, from the node that has it to another.
func aMove(c *redistest.Cluster, key string) (slot int64, from, to *redistest.Server) {
	from, slot = c.Owner(key)
	to = c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	return slot, from, to
}

// move gives a slot with its keys to another node, the way redis-cli --cluster reshard does, with a pause before each key.
func move(slot int64, from, to *redistest.Server, pause time.Duration) {
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID())
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID())
	for { // what is asked for meanwhile is partly here and partly there
		keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		time.Sleep(pause)
		from.Do("MIGRATE", "127.0.0.1", to.Port, keys[0], 0, 5000)
	}
	time.Sleep(20 * time.Millisecond)
	for _, n := range []*redistest.Server{to, from} {
		n.Do("CLUSTER", "SETSLOT", slot, "NODE", to.ID())
	}
}

// A cluster all of whose nodes get other addresses is found again by the one that the client was given, once that leads to a node.
func TestAClusterMoves(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	// anew puts a new address before each node. Clients are told these; the nodes know each other by their own.
	anew := func() (all []*redistest.Proxy) {
		for _, n := range c.Nodes {
			p := redistest.NewProxy(t, n.Addr)
			_, port, err := net.SplitHostPort(p.Addr)
			require.NoError(t, err)
			n.Do("CONFIG", "SET", "cluster-announce-port", port)
			all = append(all, p)
		}
		for _, n := range c.Nodes {
			redistest.Eventually(t, 20*time.Second, "the nodes tell of the new addresses", func() bool {
				told := fmt.Sprint(n.Do("CLUSTER", "SLOTS"))
				for _, p := range all {
					_, port, _ := net.SplitHostPort(p.Addr)
					if !strings.Contains(told, port) {
						return false
					}
				}
				return true
			})
		}
		return all
	}
	before := anew()
	seed := redistest.NewProxy(t, before[0].Addr) // what a name leads to
	l := locker(t, "redis+cluster://"+seed.Addr, nil)
	require.NoError(t, l.Do(t.Context(), "product", "1", testlocker.Nothing))

	after := anew()
	seed.Forward(after[0].Addr)
	for _, p := range before {
		p.Forward("127.0.0.1:1") // nobody is there
	}
	began := time.Now()
	require.Eventually(t, func() bool {
		return l.Do(t.Context(), "product", "1", testlocker.Nothing, wllock.WithWait(time.Second)) == nil
	}, time.Minute, 10*time.Millisecond)
	testscope.InTime(t, time.Since(began), 10*time.Second, "until the cluster was found")
}
