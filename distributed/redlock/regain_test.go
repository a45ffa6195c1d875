package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// A server that was restarted may have forgotten for whom it voted, who does not know that: it does not count in renewals until the longest TTL
// has passed, though it votes for the holder now. Nor does it for fences, which it may have forgotten as well.
func TestAHolderCountsNoYoungServer(t *testing.T) {
	s, b := three(t, WithQuorumFences())
	l := leaseOf(t, b, request("k", "a"))
	renewed := func() bool {
		r := bidOf(l).extend()
		<-r.decided
		return r.verdict == granted
	}
	require.True(t, renewed())
	require.NoError(t, l.Refill(t.Context()))
	first := s.all[0].Client()
	setMark(t, first, 0, time.Now())
	setMark(t, s.all[1].Client(), 0, time.Now())
	require.False(t, renewed())
	require.True(t, l.Healthy(), "unknown is not lost")
	require.ErrorIs(t, l.Refill(t.Context()), distributed.ErrUnavailable)
	setMark(t, first, 0, time.Now().Add(-time.Minute))
	require.True(t, renewed())
	require.NoError(t, l.Refill(t.Context()))
}

// One of three servers loses its data, and with it the vote of a waiter, who does not hear of that. The holder gets that vote by its renewals,
// and counts on it. Then the holder's vote on a server that it does not reach any more expires there, the waiter gets it, and has two.
func TestAVoteThatAServerForgotCountsForOne(t *testing.T) {
	testscope.Long(t, "waits for a vote to expire")
	t.Parallel()
	const ttl = 2 * time.Second
	s := startFor(t, 3, ttl)
	s.all[0].Do("SET", "k", "foreign")
	holder, ofHolder := ownLinks(t, s)
	holder.last.Store(1 << 52) // its clock is ahead, so the waiter is the older one, and yields nothing
	first := leaseOf(t, holder, request("k", "holder", lasting(ttl), noWait))
	waiter, ofWaiter := ownLinks(t, s)
	ofWaiter[1].SetHalfOpen(true)
	p, a := placeOf(t, waiter, request("k", "waiter", lasting(ttl)))
	s.all[0].Do("DEL", "k")
	voted := func(since time.Time) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.seats[0].given() && a.seats[0].answered.sent.After(since)
	}
	require.Eventually(t, func() bool { return voted(time.Time{}) && s.all[2].Do("PTTL", "k").(int64) > (ttl*3/4).Milliseconds() }, patience, time.Millisecond)
	ofHolder[2].Forward("127.0.0.1:1") // nobody listens there
	ofHolder[2].Cut()
	require.Eventually(t, func() bool { return s.all[2].Do("PTTL", "k").(int64) < (ttl / 5).Milliseconds() }, patience, time.Millisecond)
	now := time.Now()
	a.beat()
	require.Eventually(t, func() bool { return voted(now) }, patience, time.Millisecond)
	ofWaiter[0].SetHalfOpen(true)
	s.all[0].Do("FLUSHALL")
	for range 10 {
		<-bidOf(first).extend().decided
		time.Sleep(ttl / 100)
	}
	first.Abandon()
	for !hasEnded(first, time.Now()) {
		select {
		case second := <-p.Granted():
			require.True(t, hasEnded(first, time.Now()), "two holders, the first for %v, the second for %v", time.Until(first.Until()), time.Until(second.Until()))
			return
		case <-time.After(time.Millisecond):
		}
	}
}
