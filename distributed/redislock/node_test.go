package redislock

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
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// hanging is a cluster whose last node can be made to hang, without the others taking it for dead.
type hanging struct {
	*redistest.Cluster
	node *redistest.Server
}

func startHanging(t *testing.T) hanging {
	t.Helper()
	c := redistest.StartCluster(t)
	for _, n := range c.Nodes {
		n.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		n.Do("CONFIG", "SET", "cluster-node-timeout", "60000")
	}
	return hanging{c, c.Nodes[2]}
}

// url has a backend ask any node first.
func (h hanging) url() string { return "redis+cluster://" + strings.Join(h.Addrs(), ",") }

// keys returns n keys of the node that hangs, and n of the others, which begin so.
func (h hanging) keys(prefix string, n int) (there, elsewhere []string) {
	for i := 0; len(there) < n || len(elsewhere) < n; i++ {
		k := fmt.Sprint(prefix, i)
		if slotOf(k) < 2*slots/3 {
			elsewhere = append(elsewhere, k)
		} else {
			there = append(there, k)
		}
	}
	return there[:n], elsewhere[:n]
}

// free reports that nobody has a key, which is not of the node that hangs.
func (h hanging) free(key string) bool {
	n := h.Nodes[0]
	if slotOf(key) >= slots/3 {
		n = h.Nodes[1]
	}
	return n.Do("EXISTS", key) == int64(0)
}

// TestAHungNodeHoldsUpNoOther: renewals, heartbeats, releases and Enters of other nodes' locks go on. Renewals once stood in line behind those
// of a node that did not answer, tasks for it kept all workers, and calls to it occupied all slots.
func TestAHungNodeHoldsUpNoOther(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	h := startHanging(t)
	const ttl, held, asked = 6 * time.Second, 700, 8 * conn.MaxSlots
	u := newUser(t, with(t, h.Client())).lasting(ttl)
	there, elsewhere := h.keys(key(t), held+asked)
	var stuck, well []*lease
	for i := range held {
		stuck, well = append(stuck, u.lease(there[i])), append(well, u.lease(elsewhere[i]))
	}
	p := newUser(t, u.b).lasting(ttl).place(elsewhere[0])
	time.Sleep(ttl / 2) // claimed
	h.node.Pause()
	defer h.node.Resume()
	began := time.Now()
	for _, l := range stuck[:2*maxWorkers] {
		l.StartRelease()
		time.Sleep(5 * time.Millisecond) // not all in one exchange
	}
	well[1].StartRelease()
	inTime(t, "released", 0, func() {
		require.Eventually(t, func() bool { return h.free(elsewhere[1]) }, patience, time.Millisecond)
	})

	ctx := within(t, 2*time.Second)
	var wg sync.WaitGroup
	for _, k := range there[held:] {
		wg.Go(func() { _, _, _ = u.enter(ctx, k) })
	}
	time.Sleep(100 * time.Millisecond)
	var slowest time.Duration
	for _, k := range elsewhere[held:] {
		start := time.Now()
		u.lease(k)
		slowest = max(slowest, time.Since(start))
	}
	inTimeSince(t, began, "slowest Enter", slowest, 0)
	wg.Wait()

	for well[1] = well[0]; time.Since(began) < ttl*4/3; time.Sleep(100 * time.Millisecond) {
		for _, l := range well {
			if !l.Healthy() {
				needsQuieter(t, ttl/6)
			}
			require.True(t, l.Healthy())
		}
	}
	passOn(t, well[0], p) // nor did a place lose its heartbeats
}

// TestHungNodeAtTheFirstUse: a new backend, too, can lock what is on other nodes. The first use once failed if any of the
// servers that it asked at random was the one that hangs.
func TestHungNodeAtTheFirstUse(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	h := startHanging(t)
	_, elsewhere := h.keys(key(t), 8)
	h.node.Pause()
	for _, k := range elsewhere {
		b := byURL(t, h.url())
		inTime(t, "granted", conn.LongestTry+2*nodeBudget, func() { // for the layout, for what is asked first
			release(t, newUser(t, b).lasting(8*time.Second).lease(k))
		})
	}
	h.node.Resume()
}

// One node of a cluster that hangs is no outage: the locks of the others are acquired, and nobody enters beside a holder for want of a lease,
// however few callers there are beside those who ask the node that hangs.
func TestANodeThatHangsIsNoOutage(t *testing.T) {
	testscope.Long(t, "stops a node, and waits for leases to expire")
	const ttl, names = 2 * time.Second, "shop:n:"
	h := startHanging(t)
	there, elsewhere := h.keys(names, 4)
	for _, mode := range []wllock.Outage{wllock.FailClosed, wllock.LocalOnly} {
		t.Run(map[wllock.Outage]string{wllock.FailClosed: "closed", wllock.LocalOnly: "local"}[mode], func(t *testing.T) {
			var lockers []*wllock.Locker
			for range 2 {
				l := locker(t, h.url(), nil, wllock.WithLeaseTTL(ttl), wllock.WithOutage(mode))
				require.NoError(t, l.Do(t.Context(), "n", "first", testlocker.Nothing)) // what is asked once is asked
				lockers = append(lockers, l)
			}
			h.node.Pause()
			defer h.node.Resume()
			ctx := within(t, 4*ttl)
			var wg sync.WaitGroup
			var inside, entered atomic.Int32
			for i, l := range lockers {
				for _, key := range there[:1+i*3] { // one caller, and four
					wg.Go(func() {
						for ctx.Err() == nil {
							_ = l.Do(ctx, "n", key[len(names):], testlocker.Nothing, wllock.WithWait(2*ttl))
						}
					})
				}
				wg.Go(func() {
					for ctx.Err() == nil {
						err := l.Do(ctx, "n", elsewhere[0][len(names):], func(context.Context) error {
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
						err := l.Do(ctx, "n", elsewhere[1+i][len(names):], testlocker.Nothing, wllock.WithWait(ttl))
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
