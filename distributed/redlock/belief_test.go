package redlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// waits returns an attempt that waits for a lock that another instance of the backend has, and what publishes on its channels.
func waits(t *testing.T, s *servers, b *Backend, key string) (held distributed.Lease, p distributed.Place, tell func(system, text string)) {
	t.Helper()
	held = leaseOf(t, b, request(key, "a"))
	p, _ = placeOf(t, b, request(key, "w"))
	for _, system := range []string{"shop", "bank"} {
		b.space(system)
		for _, one := range s.all {
			require.Eventually(t, func() bool {
				got, _ := one.Do("PUBSUB", "NUMSUB", prefixOf(system)+b.process).([]any)
				return len(got) == 2 && got[1] == int64(1)
			}, patience, time.Millisecond)
		}
	}
	return held, p, func(system, text string) {
		for _, one := range s.all {
			require.EqualValues(t, 1, one.Do("PUBLISH", prefixOf(system)+b.process, text), "it is heard")
		}
	}
}

// TestAMessageIsBelievedAsFarAsItsSenderIsEntitled: one process may have locks of several systems.
func TestAMessageIsBelievedAsFarAsItsSenderIsEntitled(t *testing.T) { // rule Q11
	s, b := three(t)
	held, p, tell := waits(t, s, b, "bank:acct:9")
	a, holder := bidOf(p), bidOf(held)
	require.Eventually(t, held.Contended, patience, time.Millisecond)
	for number := range 5 {
		vote := fmt.Sprintf("vote %s %d 0 99999999999 99999999999999999 ", a.token, number)
		tell("shop", vote+"bank:acct:9")
		tell("shop", vote+"shop:acct:9")
		tell("bank", vote+"bank:acct:8")
		tell("bank", vote+"shop:acct:9")
	}
	for _, n := range b.nodes {
		n.OnMessage(prefixOf("shop")+b.process, "idle "+holder.token+" - bank:acct:9")
		n.OnMessage(prefixOf("bank")+b.process, "idle "+holder.token+" - bank:acct:8")
	}
	require.True(t, held.Contended())
	for begin := time.Now(); held.Contended(); time.Sleep(time.Millisecond) { // a renewal may have said since that others wait
		require.Less(t, time.Since(begin), patience, "all before it were read")
		tell("bank", "gone "+holder.token+" - bank:acct:9")
		tell("bank", "idle "+holder.token+" - bank:acct:9")
	}
	require.Empty(t, p.Granted())
	require.True(t, held.Healthy(), "the servers were asked")
	release(t, held)
	release(t, await(t, p))
}

// TestMessagesPutNoHeartbeatOff: neither stale ones, nor votes that are believed.
func TestMessagesPutNoHeartbeatOff(t *testing.T) { // rule Q11
	s, b := three(t)
	held, p, _ := waits(t, s, b, "bank:k")
	a := bidOf(p)
	last := func() uint64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.seats[0].last.number
	}
	for _, later := range []uint64{0, 100} { // one that is believed, and a stale one
		before := last()
		require.Eventually(t, func() bool {
			b.nodes[0].OnMessage(prefixOf("bank")+b.process, fmt.Sprintf("vote %s %d 0 99999999999 0 bank:k", a.token, last()+later))
			return last() > before+2
		}, patience, 5*time.Millisecond, "heartbeats go on")
	}
	require.NoError(t, p.Leave(t.Context()))
	release(t, held)
}

// TestAPlaceCannotNameItsOwnTTL: whatever is written there, the lock goes on, and no vote lasts for longer than any is allowed to.
func TestAPlaceCannotNameItsOwnTTL(t *testing.T) { // rule Q11
	s, b := three(t)
	require.Contains(t, enterScript.Text, fmt.Sprintf("\nlocal LONGEST = %d\n", maxTTL.Milliseconds()))
	const ghost = "wllock:1:ghost"
	for _, window := range []string{"3600000000000", "99999999999999999999", strings.Repeat("9", 400), "none"} {
		held := leaseOf(t, b, request("shop:k", "a"))
		for _, one := range s.all {
			// A late enter would find the ghost without facts, and pass over it.
			require.Eventually(t, func() bool { return one.Do("GET", "shop:k") == bidOf(held).token }, patience, time.Millisecond)
			one.Do("ZADD", helper("q:", "shop:k"), 1, ghost)
			one.Do("HSET", helper("w:", "shop:k"), ghost, fmt.Sprintf("%d %s x 1 i", time.Now().UnixMilli(), window))
		}
		release(t, held)
		for _, one := range s.all {
			require.Eventually(t, func() bool { return (one.Do("GET", "shop:k") == ghost) == (window != "none") }, patience, time.Millisecond)
			require.LessOrEqual(t, one.Do("PTTL", "shop:k"), maxTTL.Milliseconds())
			one.Do("DEL", "shop:k")
		}
	}
	require.ErrorContains(t, refusal(t, b, request("shop:k", "a", lasting(maxTTL+1))), "19200h0m0s")
	require.Equal(t, maxTTL, b.space("none").learn(duration(strings.Repeat("9", 30))))
}
