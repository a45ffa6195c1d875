package redlock

import (
	"fmt"
	"strings"
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
		var f []string
		require.Eventually(t, func() bool { f = strings.Fields(one.Get(t.Context(), markOf("")).Val()); return len(f) == 5 }, patience, time.Millisecond)
		f[0] = fmt.Sprint(time.Now().Add(-2 * time.Minute).UnixMilli())
		require.NoError(t, one.Set(t.Context(), markOf(""), strings.Join(f, " "), 0).Err())
	}
	b := with(t, clients)
	waits(b)
	for _, b := range []*Backend{with(t, clients), b} {
		release(t, leaseOf(t, b, request("short", "b")))
	}
}

// A TTL is noted with the vote that counts for it, is remembered for as long as a lease with it may last, and forgotten after twice itself.
func TestALongTTLIsForgotten(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	one := s.all[0]
	release(t, leaseOf(t, b, request("k", "a", lasting(time.Hour))))
	a := newBid(b, request("k2", "a"))
	longest := func(mode string) time.Duration { // the quick way for x, else the other
		s := readEnter(says(t, b.nodes[0], a.call(enterScript, mode, 1, a.asked, 0, "")))
		says(t, b.nodes[0], a.call(leaveScript, mode, 0))
		return s.longest
	}
	passes := func(d time.Duration) { // since the period of the mark has begun
		f := strings.Fields(one.Do("GET", markOf("")).(string))
		f[3] = fmt.Sprint(time.Now().Add(-d).UnixMilli())
		one.Do("SET", markOf(""), strings.Join(f, " "))
	}
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
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	s.all[0].Do("FLUSHALL")
	a := newBid(b, request("k", "a"))
	require.Zero(t, readEnter(says(t, b.nodes[0], a.call(enterScript, "x", 1, a.asked, 0, ""))).longest, "it does not count for this one")
	says(t, b.nodes[0], a.renewCall("x", 0))
	require.Equal(t, a.ttl, readEnter(says(t, b.nodes[0], a.call(enterScript, "x", 1, a.asked, 0, ""))).longest)
}
