package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

func subscribedAt(s *redistest.Server) int {
	channels, _ := s.Do("PUBSUB", "CHANNELS", conn.HelperPrefix+"*").([]any)
	return len(channels)
}

// The subscription to one of the servers follows the commands to the one that its name leads to, though the old one answers its pings. One line
// says that it was lost and where it was, one that it is back. Those to the other servers stay.
func TestASubscriptionFollowsTheCommands(t *testing.T) { // rule Q12
	t.Parallel()
	s := startFor(t, 3, time.Minute)
	to := redistest.Start(t)
	var log testlocker.Log
	b := s.open(WithLogger(log.Logger()))
	l := leaseOf(t, b, request("shop:k", "a", lasting(1500*time.Millisecond))) // H is 250 ms
	for _, one := range s.all {
		require.Eventually(t, func() bool { return subscribedAt(one) == 1 }, patience, time.Millisecond)
	}
	s.proxies[0].Redirect(to.Addr)
	s.all[0].Do("REPLICAOF", "127.0.0.1", "1") // it refuses commands
	require.Eventually(t, func() bool { return subscribedAt(to) == 1 }, patience, time.Millisecond)
	require.Zero(t, subscribedAt(s.all[0]))
	require.Eventually(t, func() bool { return log.Count("subscription is back") == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, log.Count("subscription lost, places are served by heartbeats"))
	require.Equal(t, 1, log.Count("subscribed at "+s.proxies[0].Addr+": what commands publish does not arrive there"))
	release(t, l)
}

// Messages are expected while somebody waits or holds, on the channel of that lock's system. Else a process sends no proof.
func TestMessagesAreExpectedWhileSomebodyWaitsOrHolds(t *testing.T) { // rule Q12
	s, b := three(t)
	other := s.open()
	expects := func(b *Backend) []string {
		channel, key := b.nodes[0].Expects()
		return []string{channel, key}
	}
	ours := func(b *Backend) []string { return []string{prefixOf("shop") + b.process, "shop:k"} }
	none := []string{"", ""}
	require.Equal(t, none, expects(b))
	l := leaseOf(t, b, request("shop:k", "a"))
	require.Equal(t, ours(b), expects(b))
	p, _ := placeOf(t, other, request("shop:k", "b"))
	require.Equal(t, ours(other), expects(other))
	require.NoError(t, p.Leave(t.Context()))
	release(t, l)
	for _, b := range []*Backend{b, other} {
		require.Eventually(t, func() bool { return expects(b)[0] == "" }, patience, time.Millisecond)
	}
}
