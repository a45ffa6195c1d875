package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A first start is no restart: an instance with a long TTL waits until the servers have their data for so long. Others do not.
func TestALongTTLStopsNobodyElse(t *testing.T) {
	t.Parallel()
	clients := fresh(t)
	waits := func(b *Backend) {
		p, _ := placeOf(t, b, request("long", "a", lasting(time.Hour))) // the servers may have been restarted
		require.NoError(t, p.Leave(t.Context()))
	}
	waits(with(t, clients))
	for _, one := range clients { // two minutes later
		setMark(t, one, 0, time.Now().Add(-2*time.Minute))
	}
	b := with(t, clients)
	waits(b)
	for _, b := range []*Backend{with(t, clients), b} {
		release(t, leaseOf(t, b, request("short", "b")))
	}
}

// A TTL is noted with the vote that counts for it, is remembered for as long as a lease with it may last, and forgotten after twice itself.
func TestALongTTLIsForgotten(t *testing.T) {
	s, b := three(t)
	release(t, leaseOf(t, b, request("k", "a", lasting(time.Hour))))
	a := newBid(b, request("k2", "a"))
	longest := func(mode string) time.Duration { // the quick way for x, else the other
		s := readEnter(says(t, b.nodes[0], a.call(enterScript, mode, 1, a.asked, 0, "")))
		says(t, b.nodes[0], a.call(leaveScript, mode, 0))
		return s.longest
	}
	passes := func(d time.Duration) { setMark(t, s.all[0].Client(), 3, time.Now().Add(-d)) } // since the period of the mark has begun
	require.Eventually(t, func() bool { return longest("x") == time.Hour }, patience, time.Millisecond, "the vote of one was not needed, and comes late")
	for _, mode := range []string{"x", "s", "x"} {
		require.Equal(t, time.Hour, longest(mode))
	}
	passes(time.Hour + time.Second)
	for _, mode := range []string{"x", "s", "x"} {
		require.Equal(t, time.Hour, longest(mode), "of the period before")
	}
	passes(time.Hour + time.Second)
	require.Equal(t, a.ttl, longest("x"), "and what was named in the last one is remembered")
	passes(time.Hour)
	require.Equal(t, a.ttl, longest("s"), "nobody has asked for long")
}

// A server that was restarted learns of a lease's TTL by its renewals, however young it is: others wait for so long then.
func TestARenewalTellsAYoungServer(t *testing.T) {
	s, b := three(t)
	s.all[0].Do("FLUSHALL")
	a := newBid(b, request("k", "a"))
	require.Zero(t, readEnter(says(t, b.nodes[0], a.call(enterScript, "x", 1, a.asked, 0, ""))).longest, "it does not count for this one")
	says(t, b.nodes[0], a.renewCall("x", 0))
	require.Equal(t, a.ttl, readEnter(says(t, b.nodes[0], a.call(enterScript, "x", 1, a.asked, 0, ""))).longest)
}
