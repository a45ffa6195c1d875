package redlock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
)

// rest has a server not asked until then.
func (n *node) rest(until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures, n.pausedTo, n.why = failuresToPause, until, errLate
	n.b.pauses.Add(1)
}

// What is to find out whether a server is back may be a release that an Enter makes needless: then the next question does.
func TestANeedlessQuestionFindsNothingOut(t *testing.T) {
	_, b := three(t)
	n := b.nodes[0]
	n.rest(time.Now())
	echo := *conn.NewCall(echoScript, nil)
	n.send(&ask{Call: echo, lane: lanes, limit: patience, needless: func() bool { return true }})
	require.Eventually(t, func() bool {
		answered := make(chan error, 1)
		n.send(&ask{Call: echo, lane: lanes, limit: patience, done: func(k *ask) { answered <- k.Err }})
		return <-answered == nil
	}, patience, time.Millisecond)
}

// Over a long network a connection takes longer to make than a server may take to answer. A try that was too short for one is not in vain.
func TestALeaseOverALongNetwork(t *testing.T) {
	t.Parallel()
	const ttl, rtt = time.Second, 60 * time.Millisecond // dial, HELLO and hello take longer than H
	s := startFor(t, 3, ttl)
	for _, p := range s.proxies {
		p.SetDelay(rtt / 2)
	}
	b := s.open()
	require.Eventually(t, func() bool {
		l, _, _ := b.Enter(t.Context(), request("k", "a", lasting(ttl), noWait))
		if l != nil {
			_ = l.Release(t.Context())
		}
		return l != nil
	}, patience, time.Millisecond)
}

// A server that is far away has its own round trip, so it votes in time though the others have decided.
func TestEachServerHasItsOwnRoundTrip(t *testing.T) {
	t.Parallel()
	var n node
	n.took(300 * time.Millisecond) // with a connection that was made
	n.took(100 * time.Millisecond)
	require.EqualValues(t, 100*time.Millisecond, n.rtt.Load())
	n.took(180 * time.Millisecond)
	require.EqualValues(t, 110*time.Millisecond, n.rtt.Load())
	require.Greater(t, tryTimeout(time.Second, time.Duration(n.rtt.Load())), tryTimeout(time.Second, time.Millisecond))
}

// What a server that is away has still to be told is not tried again before it may be back, and is not kept without bound.
func TestChoresWaitForTheServer(t *testing.T) {
	_, b := three(t)
	n := b.nodes[0]
	n.rest(time.Now().Add(time.Hour))
	var tries, given atomic.Int64
	echo := *conn.NewCall(echoScript, nil)
	chore := func(until time.Time) {
		missed, done := func(*ask) { tries.Add(1) }, func(*ask) { given.Add(1) }
		n.send(&ask{Call: echo, lane: lanes, limit: patience, until: until, missed: missed, done: done})
	}
	const chores = maxChores + 10
	chore(time.Now().Add(time.Second)) // longer than the others take to come
	for range chores - 1 {
		chore(time.Now().Add(time.Hour))
	}
	require.EqualValues(t, 10, given.Load(), "more than are kept")
	ticks := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, timer := range n.chores {
			if timer.Stop() { // else it goes off by itself
				timer.Reset(0)
			}
		}
	}
	require.Eventually(t, func() bool { ticks(); return given.Load() == 11 }, patience, time.Millisecond, "its time is over")
	require.EqualValues(t, chores, tries.Load(), "the first time only")
	n.mu.Lock()
	n.pausedTo = time.Now()
	n.mu.Unlock()
	require.Eventually(t, func() bool { ticks(); return given.Load() == chores }, patience, time.Millisecond)
}
