package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// hanging is a cluster whose last node can be made to hang, without the others taking it for dead.
type hanging struct {
	*redistest.Cluster
	t    *testing.T
	node *redistest.Server
}

func startHanging(t *testing.T) hanging {
	t.Helper()
	c := redistest.StartCluster(t)
	for _, n := range c.Nodes {
		n.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		n.Do("CONFIG", "SET", "cluster-node-timeout", "60000")
	}
	return hanging{c, t, c.Nodes[2]}
}

// keys returns n keys of the node that hangs, and n of the others.
func (h hanging) keys(n int) (there, elsewhere []string) {
	for i := 0; len(there) < n || len(elsewhere) < n; i++ {
		k := fmt.Sprintf("%s%d", key(h.t), i)
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
	there, elsewhere := h.keys(held + asked)
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
	start := time.Now()
	well[1].StartRelease()
	require.Eventually(t, func() bool { return h.free(elsewhere[1]) }, patience, time.Millisecond)
	inTime(t, "released", time.Since(start), 0)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
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
	release(t, well[0])
	release(t, granted(t, p)) // nor did a place lose its heartbeats
}

// TestHungNodeAtTheFirstUse: a new backend, too, can lock what is on other nodes. The first use once failed if any of the
// servers that it asked at random was the one that hangs.
func TestHungNodeAtTheFirstUse(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	h := startHanging(t)
	_, elsewhere := h.keys(8)
	h.node.Pause()
	for _, k := range elsewhere {
		b := byURL(t, "redis+cluster://"+strings.Join(h.Addrs(), ","))
		start := time.Now()
		release(t, newUser(t, b).lasting(8*time.Second).lease(k))
		inTime(t, "granted", time.Since(start), conn.LongestTry+2*nodeBudget) // for the layout, for what is asked first
	}
	h.node.Resume()
}
