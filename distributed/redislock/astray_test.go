package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// leads has new connections of a proxy lead to another server, as a name does after a failover, and the old server go on as a replica
// of nobody: it refuses commands.
func leads(p *redistest.Proxy, from, to *redistest.Server) {
	p.Redirect(to.Addr)
	to.Do("REPLICAOF", "NO", "ONE")
	from.Do("REPLICAOF", "127.0.0.1", "1")
}

// A subscription follows the commands to the server that a name leads to, though the old one answers its pings. One line says that it was
// lost and where it was, one that it is back.
func TestASubscriptionFollowsTheCommands(t *testing.T) { // rule R10
	t.Parallel()
	from, to := redistest.Start(t), redistest.Start(t)
	p := redistest.NewProxy(t, from.Addr)
	var log testlocker.Log
	o := &redis.Options{Addr: p.Addr}
	for _, s := range []*redistest.Server{from, to} {
		s.AddUser(t, "redis.md", "shop")(o) // whose rights are enough for that
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	b := with(t, client, WithLogger(log.Logger()))
	u := newUser(t, b).lasting(6 * time.Second) // H is 1 s, and an Enter may take half of T
	release(t, u.lease("shop:hot"))
	require.Eventually(t, func() bool { return subscribedAt(from) == 1 }, patience, time.Millisecond)
	leads(p, from, to)
	l := u.lease("shop:hot")
	require.Eventually(t, func() bool { return subscribedAt(to) == 1 }, patience, time.Millisecond)
	require.Zero(t, subscribedAt(from))
	require.Eventually(t, func() bool { return log.Count("subscription is back") == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, log.Count("subscription lost, places are served by heartbeats"))
	require.Equal(t, 1, log.Count("subscribed at "+p.Addr+": what commands publish does not arrive there"))
	release(t, l)
}

// Messages are expected while somebody waits or holds, on the channel of that lock's system. Else a process sends no proof.
func TestMessagesAreExpectedWhileSomebodyWaitsOrHolds(t *testing.T) { // rule R10
	synctest.Test(t, func(t *testing.T) {
		b := openStub(t, func(c *conn.Call) (string, error) {
			switch {
			case c.Script == enterScript && strings.HasSuffix(c.Key(), "held"):
				return "lease 4000000000000000000 1000 0", nil
			case c.Script == leaveScript:
				return "released", nil
			}
			return "place 0 -1 0 another 0", nil
		}, "shop", "bank")
		expects := func() []string {
			channel, key := b.sub.Expects()
			return []string{channel, key}
		}
		none := []string{"", ""}
		require.Equal(t, none, expects())
		u := newUser(t, b).lasting(time.Minute)
		p := u.place("shop:waits")
		require.Equal(t, []string{channelOf("shop", b.s.process), "shop:waits"}, expects())
		require.NoError(t, p.Leave(t.Context()))
		require.Equal(t, none, expects())
		l := u.lease("bank:held")
		require.Equal(t, []string{channelOf("bank", b.s.process), "bank:held"}, expects())
		release(t, l)
		require.Equal(t, none, expects())
	})
}

// defaultTTL is T unless set: H is 833 ms.
const defaultTTL = 5 * time.Second

// handOver passes a key to and fro between backends for d, and returns how often, and the longest time that it took.
func handOver(t *testing.T, d time.Duration, key string, all []*Backend) (n int, longest time.Duration) {
	t.Helper()
	var users []user
	for _, b := range all {
		users = append(users, newUser(t, b).lasting(defaultTTL))
	}
	get := func(u user) distributed.Lease {
		for {
			l, p, err := u.enter(t.Context(), key)
			if errors.Is(err, distributed.ErrUnavailable) {
				continue
			}
			require.NoError(t, err)
			if p == nil {
				return l
			}
			if l, ok := <-p.Granted(); ok {
				return l
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for end := time.Now().Add(d); len(users) > 0; users = users[1:] {
		u := users[0]
		wg.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				l := get(u)
				mu.Lock()
				n, longest = n+1, max(longest, time.Since(began))
				mu.Unlock()
				_ = l.Release(context.Background()) // it may have been lost with the old server
			}
		})
	}
	wg.Wait()
	return n, longest
}

// paced passes a key to and fro, also while something changes by which the subscriptions move from a server to others. That is to take 2 H, and
// afterwards the key goes from hand to hand by messages again.
func paced(t *testing.T, key string, all []*Backend, change func(), from *redistest.Server, to ...*redistest.Server) {
	t.Helper()
	before, _ := handOver(t, 2*time.Second, key, all)
	change()
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		redistest.Eventually(t, patience, "all subscriptions have moved", func() bool {
			n := 0
			for _, s := range to {
				n += subscribedAt(s)
			}
			return n == len(all) && subscribedAt(from) == 0
		})
		inTimeSince(t, start, "subscriptions have moved", time.Since(start), 2*distributed.HeartbeatInterval(defaultTTL))
	})
	handOver(t, 3*time.Second, key, all)
	wg.Wait()
	after, longest := handOver(t, 2*time.Second, key, all)
	t.Logf("%d hand-overs before, %d after in 2 s by %d, the longest took %v", before, after, len(all), longest)
	require.Greater(t, after, before/10)
}

// A hot key goes from process to process by messages again soon after its name has led to the promoted replica, while the old primary lives.
func TestAHotKeyIsQuickAfterItsNameLeadsToAnotherServer(t *testing.T) { // rule R10
	testscope.Long(t, "measures the pace of a hot key for seconds")
	t.Parallel()
	from := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	to := redistest.Start(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+fmt.Sprint(from.Port))
	p := redistest.NewProxy(t, from.Addr)
	all := []*Backend{open(t, p.Addr), open(t, p.Addr), open(t, p.Addr)}
	paced(t, key(t), all, func() {
		require.Equal(t, len(all), subscribedAt(from))
		redistest.Eventually(t, patience, "the replica has the data", func() bool {
			return info(to.Do("INFO", "replication"), "master_link_status") == "up"
		})
		leads(p, from, to)
	}, from, to)
}

// A cluster is made smaller, and the node that was removed goes on running: subscriptions leave it, and the locks whose slots it had are
// found at the other nodes.
func TestSubscriptionsLeaveANodeThatLeftTheCluster(t *testing.T) { // rule R10
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	last := c.Nodes[2]
	var all []*Backend
	for subscribedAt(last) < 2 {
		b := with(t, c.Client())
		release(t, newUser(t, b).lasting(defaultTTL).lease(key(t)))
		all = append(all, b)
		redistest.Eventually(t, patience, "it is subscribed", func() bool {
			return subscribedAt(c.Nodes[0])+subscribedAt(c.Nodes[1])+subscribedAt(last) == len(all)
		})
	}
	hot := ""
	for i := 0; hot == ""; i++ { // at a node that stays
		if owner, _ := c.Owner(fmt.Sprint(key(t), i)); owner != last {
			hot = fmt.Sprint(key(t), i)
		}
	}
	paced(t, hot, all, c.Remove, last, c.Nodes[:2]...)
	for i := range 30 { // of which a third were there
		release(t, newUser(t, all[0]).lasting(defaultTTL).lease(fmt.Sprint(key(t), "-", i)))
	}
}

// A slot that moves away from the node that a subscription is at moves no subscription: each node passes on what is published at another.
func TestAReshardMovesNoSubscription(t *testing.T) { // rule R10
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	var log testlocker.Log
	all := []*Backend{with(t, c.Client(), WithLogger(log.Logger())), with(t, c.Client(), WithLogger(log.Logger())), with(t, c.Client(), WithLogger(log.Logger()))}
	slot, from, to := aMove(c, key(t))
	var wg sync.WaitGroup
	wg.Go(func() { handOver(t, 4*time.Second, key(t), all) })
	time.Sleep(time.Second)
	move(slot, from, to, 5*time.Millisecond)
	wg.Wait()
	require.Zero(t, log.Count("subscription lost"))
}

// After a failover that the sentinels decide on, subscriptions go on at the new primary, and are lost once at most.
func TestSubscriptionsAreAtThePrimaryAfterAFailover(t *testing.T) { // rule R10
	testscope.Long(t, "a failover")
	t.Parallel()
	group := redistest.StartSentinel(t)
	var log testlocker.Log
	all := []*Backend{with(t, group.Client(), WithLogger(log.Logger())), with(t, group.Client(), WithLogger(log.Logger()))}
	paced(t, key(t), all, func() {
		require.Equal(t, len(all), subscribedAt(group.Primary))
		group.Failover()
	}, group.Primary, group.Replica)
	require.LessOrEqual(t, log.Count("subscription lost"), len(all))
}
