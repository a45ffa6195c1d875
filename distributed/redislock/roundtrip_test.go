package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

// TestSlowOnceIsNotSlowForEver: a server that was slow at the start, or during a Ping, once had all Enters refused until the
// next Ping.
func TestSlowOnceIsNotSlowForEver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, slow := range map[string]func(u user) error{
		"at the start": func(u user) error { _, _, err := u.enter(t.Context(), "slow"); return err },
		"during a Ping": func(u user) error {
			if err := u.b.Ping(t.Context()); err != nil {
				return err
			}
			_, _, err := u.enter(t.Context(), "slow")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr)
			p.SetDelay(50 * time.Millisecond)
			u := newUser(t, open(t, p.Addr))
			err := slow(u)
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.ErrorContains(t, err, "too short for round trips")
			p.SetDelay(0)
			time.Sleep(remeasure)
			release(t, u.lease(key(t)))
		})
	}
}

// TestAdmittedTTLsWork: a TTL that was too short for the network was once admitted, and then no Enter ever succeeded. The
// error names one that works.
func TestAdmittedTTLsWork(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const rtt = 60 * time.Millisecond
	p := redistest.NewProxy(t, s.Addr)
	p.SetDelay(rtt / 2)
	b := open(t, p.Addr)
	ttl := shortestTTL(rtt + 5*time.Millisecond)
	require.False(t, longEnough(ttl*8/10, rtt))
	_, _, err := newUser(t, b).lasting(ttl*8/10).enter(t.Context(), key(t))
	require.ErrorContains(t, err, "it takes ")
	for i := range 4 {
		u := newUser(t, open(t, p.Addr)).lasting(ttl) // whose connections are new
		l := u.lease(key(t))
		time.Sleep(ttl / 2 * time.Duration(i))
		require.True(t, l.Healthy())
		require.NoError(t, l.Release(t.Context()))
	}
}

// TestTheFirstUseTakesTwoRoundTrips, beside the connecting.
func TestTheFirstUseTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const rtt = 40 * time.Millisecond
	p := redistest.NewProxy(t, s.Addr)
	p.SetDelay(rtt / 2)
	b := open(t, p.Addr)
	start := time.Now()
	require.NoError(t, b.Ping(t.Context()))
	inTime(t, "the first", time.Since(start)-slack/2, (coldTrips+1)*rtt-slack/2)
	start = time.Now()
	require.NoError(t, b.Ping(t.Context()))
	inTime(t, "the second", time.Since(start)+slack, 3*rtt)
}

func TestShortestTTL(t *testing.T) {
	for rtt := time.Duration(0); rtt < time.Second; rtt += time.Millisecond {
		ttl := shortestTTL(rtt)
		require.True(t, longEnough(ttl, rtt))
		if ttl > distributed.MinTTL {
			require.False(t, longEnough(ttl-10*time.Millisecond, rtt), "%v for %v", ttl, rtt)
		}
	}
}
