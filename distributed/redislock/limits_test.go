package redislock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// A client may limit its connections. Callers wait for one then; none is told that the server is away, no held lock is lost,
// and the limit is kept.
func TestTheClientsLimitsAreBorne(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*redis.Options){
		"MaxActiveConns of 5":   func(o *redis.Options) { o.MaxActiveConns = 5 },
		"MaxActiveConns of 1":   func(o *redis.Options) { o.MaxActiveConns = 1 },
		"PoolSize of 1":         func(o *redis.Options) { o.PoolSize = 1 },
		"a PoolTimeout of 1 ns": func(o *redis.Options) { o.MaxActiveConns, o.PoolTimeout = 5, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(limit)
			b, err := redislock.New(client)
			require.NoError(t, err)
			testlocker.Crowd(t, b)
			if most := max(client.Options().MaxActiveConns, 3); client.Options().MaxActiveConns > 0 {
				list, _ := s.Do("CLIENT", "LIST").(string)
				require.LessOrEqual(t, strings.Count(list, "\n"), most+2, "%s\nand a subscription, and the one that asks", list)
			}
		})
	}
}

// A cluster all of whose nodes get other addresses is found again by the one that the client was given, once that leads to a node.
func TestAClusterMoves(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	// move puts a new address before each node. Clients are told these; the nodes know each other by their own.
	move := func() (all []*redistest.Proxy) {
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
	before := move()
	seed := redistest.NewProxy(t, before[0].Addr) // what a name leads to
	b, err := redislock.Open("redis+cluster://" + seed.Addr)
	require.NoError(t, err)
	l, err := wllock.New("shop", b, wllock.WithOwnedBackend())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	require.NoError(t, l.Do(t.Context(), "product", "1", func(context.Context) error { return nil }))

	after := move()
	seed.Forward(after[0].Addr)
	for _, p := range before {
		p.Forward("127.0.0.1:1") // nobody is there
	}
	began := time.Now()
	require.Eventually(t, func() bool {
		return l.Do(t.Context(), "product", "1", func(context.Context) error { return nil }, wllock.WithWait(time.Second)) == nil
	}, time.Minute, 10*time.Millisecond)
	testscope.InTime(t, time.Since(began), 10*time.Second, "until the cluster was found")
}

// Sentinels may have a password of their own.
func TestSentinelsWithAPassword(t *testing.T) {
	testscope.Long(t, "starts sentinels")
	t.Parallel()
	group := redistest.StartSentinel(t)
	for _, s := range group.Sentinels {
		s.Do("ACL", "SETUSER", "default", "resetpass", ">open:/?sesame")
	}
	address := "redis+sentinel://" + strings.Join(group.Addrs(), ",") + "/" + redistest.MasterName
	b, err := redislock.Open(address + "?sentinel_password=open%3A%2F%3Fsesame&max_active_conns=5")
	require.NoError(t, err)
	require.NoError(t, b.Ping(t.Context()))
	require.NotContains(t, fmt.Sprintf("%v %#v", b, b), "sesame")
	require.NoError(t, b.Close())

	b, err = redislock.Open(address)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.ErrorContains(t, b.Ping(ctx), "NOAUTH")
	require.NoError(t, b.Close())
}
