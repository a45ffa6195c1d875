package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// TestSlowOnceIsNotSlowForEver: a server that was slow at the start, or during a Ping, once had all Enters refused until the
// next Ping.
func TestSlowOnceIsNotSlowForEver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, slow := range map[string]func(u user) error{
		"at the start": func(u user) error { return u.fails(t.Context(), "slow") },
		"during a Ping": func(u user) error {
			if err := u.b.Ping(t.Context()); err != nil {
				return err
			}
			return u.fails(t.Context(), "slow")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr)
			p.SetDelay(100 * time.Millisecond)
			u := newUser(t, open(t, p.Addr))
			var err error // on a busy machine the first round trips take all of their time
			require.Eventually(t, func() bool { err = slow(u); return errors.Is(err, distributed.ErrRefused) }, 10*time.Second, time.Millisecond)
			require.ErrorContains(t, err, "too short for round trips")
			require.ErrorContains(t, err, "use at least ")
			p.SetDelay(0)
			time.Sleep(remeasure)
			release(t, u.lease(key(t)))
		})
	}
}

// TestASlowerNetworkIsNoticed: when the round trip had grown beyond what a try was given, no Enter ever succeeded, though leases
// can be kept over that network.
func TestASlowerNetworkIsNoticed(t *testing.T) {
	testscope.Long(t, "takes 5 s")
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	const ttl = 3 * time.Second
	u := newUser(t, open(t, p.Addr)).lasting(ttl)
	release(t, u.lease(key(t)))
	p.SetDelay(ttl / 5 / 2) // beyond H
	require.ErrorIs(t, u.fails(t.Context(), key(t)), distributed.ErrUnavailable)
	l, _, err := u.enter(t.Context(), key(t))
	if err == nil {
		err = l.Release(t.Context())
	}
	if err != nil {
		needsQuieter(t, ttl/busyPerTTL/2) // which is what this network leaves of T
	}
	require.NoError(t, err, "it was kept")
}

// TestTheFirstUseTakesTwoRoundTrips, beside the connecting.
func TestTheFirstUseTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const rtt = 40 * time.Millisecond
	p := redistest.NewProxy(t, s.Addr)
	p.SetDelay(rtt / 2)
	b := open(t, p.Addr)
	inTime(t, "the first", 4*rtt, func() { require.NoError(t, b.Ping(t.Context())) })
	inTime(t, "the second, without slack", 3*rtt-slack, func() { require.NoError(t, b.Ping(t.Context())) })
}

// over is a network with these round trips, and no TLS.
func over(rtt time.Duration) network { return network{rtt: rtt, cold: 3 * rtt} }

func TestShortestTTL(t *testing.T) {
	for rtt := time.Duration(0); rtt < time.Second; rtt += time.Millisecond {
		ttl := over(rtt).shortestTTL()
		require.True(t, over(rtt).allows(ttl))
		if ttl > distributed.MinTTL {
			require.False(t, over(rtt).allows(ttl-10*time.Millisecond), "%v for %v", ttl, rtt)
		}
	}
}

func TestClaimWindow(t *testing.T) {
	for _, ttl := range []time.Duration{distributed.MinTTL, time.Second, 5 * time.Second, time.Hour} {
		require.Equal(t, distributed.ClaimWindow(ttl), over(0).claimWindow(ttl))
		require.Equal(t, distributed.ClaimWindow(ttl), over(ttl/30).claimWindow(ttl), "a near server grants no more")
		for rtt := time.Duration(0); over(rtt).allows(ttl); rtt += ttl / 1000 {
			window := over(rtt).claimWindow(ttl)
			require.LessOrEqual(t, window, ttl)
			left := window - distributed.Drift(window) - rtt + time.Millisecond // of an enter's grant when its reply is there
			require.GreaterOrEqual(t, left, over(rtt).claimTime(ttl), "for a claim on a new connection")
		}
	}
	require.True(t, over(200*time.Millisecond).allows(time.Second))
	require.False(t, over(250*time.Millisecond).allows(time.Second))
}

// A request names the window that its network needs.
func TestARequestHasTheWindowOfItsNetwork(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	_, b := openNew(t)
	release(t, newUser(t, b).lease(key(t)))
	b.s.rtt.Store(int64(ttl / 8)) // from now on nothing is exchanged
	a := b.client.Orphan(b.client.NextNumber(), distributed.Request{Key: key(t), Instance: "i", TTL: ttl})
	require.NoError(t, half{b}.Prepare(t.Context(), a))
	require.Greater(t, a.Window, distributed.ClaimWindow(ttl))
	require.Equal(t, b.s.network().claimWindow(ttl), a.Window)
}

// TestTheRoundTripIsFollowed: quicker exchanges count at once, slower ones in time, and none before it was measured.
func TestTheRoundTripIsFollowed(t *testing.T) {
	s := new(session)
	took := func(rtt time.Duration) time.Duration {
		s.observe(distributed.Exchange{RTT: rtt})
		return time.Duration(s.rtt.Load())
	}
	require.Zero(t, took(time.Second))
	s.rtt.Store(int64(time.Second))
	require.Equal(t, time.Second, took(0), "a failure")
	require.Equal(t, time.Millisecond, took(time.Millisecond))
	require.Less(t, took(10*time.Millisecond), 2*time.Millisecond)
	for range 10 * slowerCounts {
		took(10 * time.Millisecond)
	}
	require.Greater(t, took(10*time.Millisecond), 9*time.Millisecond)
}
