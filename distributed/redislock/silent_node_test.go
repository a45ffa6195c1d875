package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// One node of a cluster that hangs is no outage: the locks of the others are acquired, and nobody enters beside a holder for want of a lease,
// however few callers there are beside those who ask the node that hangs.
func TestANodeThatHangsIsNoOutage(t *testing.T) {
	testscope.Long(t, "stops a node, and waits for leases to expire")
	const ttl = 2 * time.Second
	cluster := redistest.StartCluster(t)
	for _, n := range cluster.Nodes {
		n.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		n.Do("CONFIG", "SET", "cluster-node-timeout", "60000")
	}
	client := cluster.Client()
	var there, elsewhere []string
	for i := 0; len(there) < 4 || len(elsewhere) < 4; i++ {
		key := fmt.Sprint(i)
		slot, err := client.ClusterKeySlot(t.Context(), "shop:n:"+key).Result()
		require.NoError(t, err)
		if slot > 10922 {
			there = append(there, key)
		} else {
			elsewhere = append(elsewhere, key)
		}
	}
	for _, mode := range []wllock.Outage{wllock.FailClosed, wllock.LocalOnly} {
		t.Run(map[wllock.Outage]string{wllock.FailClosed: "closed", wllock.LocalOnly: "local"}[mode], func(t *testing.T) {
			var lockers []*wllock.Locker
			for range 2 {
				b, err := redislock.Open("redis+cluster://" + strings.Join(cluster.Addrs(), ","))
				require.NoError(t, err)
				l, err := wllock.New("shop", b, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl), wllock.WithOutage(mode))
				require.NoError(t, err)
				defer l.Close(context.Background())
				require.NoError(t, l.Do(t.Context(), "n", "first", func(context.Context) error { return nil })) // what is asked once is asked
				lockers = append(lockers, l)
			}
			cluster.Nodes[2].Pause()
			defer cluster.Nodes[2].Resume()
			ctx, cancel := context.WithTimeout(t.Context(), 4*ttl)
			defer cancel()
			var wg sync.WaitGroup
			var inside, entered atomic.Int32
			for i, l := range lockers {
				for _, key := range there[:1+i*3] { // one caller, and four
					wg.Go(func() {
						for ctx.Err() == nil {
							_ = l.Do(ctx, "n", key, func(context.Context) error { return nil }, wllock.WithWait(2*ttl))
						}
					})
				}
				wg.Go(func() {
					for ctx.Err() == nil {
						err := l.Do(ctx, "n", elsewhere[0], func(context.Context) error {
							if n := inside.Add(1); n != 1 {
								t.Errorf("%d inside", n)
							}
							entered.Add(1)
							time.Sleep(ttl / 4)
							inside.Add(-1)
							return nil
						}, wllock.WithWait(2*ttl))
						if err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
					}
				})
				wg.Go(func() {
					for ctx.Err() == nil {
						start := time.Now()
						err := l.Do(ctx, "n", elsewhere[1+i], func(context.Context) error { return nil }, wllock.WithWait(ttl))
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						testscope.InTime(t, time.Since(start), ttl/2, "a free lock of another node")
						time.Sleep(ttl / 100)
					}
				})
			}
			wg.Wait()
			require.GreaterOrEqual(t, entered.Load(), int32(8), "the lock that is held")
		})
	}
}
