package redislock

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// behind returns a backend that finds its primary by a client's sentinels, and one that does so by those of a URL.
func behind(t *testing.T, group *redistest.Sentinel) map[string]*Backend {
	t.Helper()
	return map[string]*Backend{
		"New":  with(t, group.Client()),
		"Open": byURL(t, "redis+sentinel://"+strings.Join(group.Addrs(), ",")+"/"+redistest.MasterName),
	}
}

// named reports that all sentinels take the server for the primary.
func named(group *redistest.Sentinel, primary *redistest.Server) bool {
	for _, s := range group.Sentinels {
		a, _ := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName).([]any)
		if len(a) != 2 || net.JoinHostPort(a[0].(string), a[1].(string)) != primary.Addr {
			return false
		}
	}
	return true
}

// subscribedAt returns how many backends have subscribed at a server.
func subscribedAt(s *redistest.Server) int {
	channels, _ := s.Do("PUBSUB", "CHANNELS", prefix+"*").([]any)
	return len(channels)
}

// TestSentinelOldPrimaryIsLeft: a primary hangs, another takes over, and the old one comes back and still takes writes.
// Nobody goes on with it, though the connections to it are as good as ever.
func TestSentinelOldPrimaryIsLeft(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	group := redistest.StartSentinel(t)
	users := make(map[string]user)
	for name, b := range behind(t, group) {
		users[name] = newUser(t, b).lasting(2 * time.Second)
		release(t, users[name].lease(key(t)))
	}
	require.Equal(t, 2, subscribedAt(group.Primary))
	group.Primary.Pause()
	redistest.Eventually(t, 30*time.Second, "every sentinel knows of the new primary", func() bool { return named(group, group.Replica) })
	time.Sleep(2 * distributed.HeartbeatInterval(2*time.Second)) // the sentinels are asked once in this time
	group.Primary.Resume()
	for name, u := range users {
		l := u.lease(key(t) + name)
		require.NotNil(t, group.Replica.Do("GET", key(t)+name), "%s: granted by the old primary", name)
		release(t, l)
	}
	require.Zero(t, subscribedAt(group.Primary), "at the old one")
	require.Eventually(t, func() bool { return subscribedAt(group.Replica) == 2 }, patience, time.Millisecond, "at the new one")
}

// TestSentinelHangsWithItsPrimary: both are on one machine as a rule. Somebody else must be asked where the primary is.
func TestSentinelHangsWithItsPrimary(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	group := redistest.StartSentinel(t)
	backend := behind(t, group)["Open"]
	u := newUser(t, backend)
	release(t, u.lease(key(t)))
	var asked *redistest.Server
	for _, s := range group.Sentinels {
		if clients, _ := s.Do("CLIENT", "LIST", "TYPE", "pubsub").(string); strings.Contains(clients, "sub=2") {
			asked = s
		}
	}
	require.NotNil(t, asked)
	group.Primary.Pause()
	asked.Pause()
	start := time.Now()
	require.Eventually(t, func() bool {
		l, _, err := u.enter(t.Context(), key(t)+"2", noWait)
		return err == nil && l.Release(t.Context()) == nil
	}, 30*time.Second, 10*time.Millisecond)
	t.Logf("granted after %v", time.Since(start))
}

// Sentinels may have a password of their own.
func TestSentinelsWithAPassword(t *testing.T) {
	testscope.Long(t, "starts sentinels")
	t.Parallel()
	group := redistest.StartSentinel(t)
	for _, s := range group.Sentinels {
		s.Do("ACL", "SETUSER", "default", "resetpass", ">open:/?sesame")
	}
	address := "redis+sentinel://" + strings.Join(group.Addrs(), ",") + "/" + redistest.MasterName
	b := byURL(t, address+"?sentinel_password=open%3A%2F%3Fsesame&max_active_conns=5")
	require.NoError(t, b.Ping(t.Context()))
	require.NotContains(t, fmt.Sprintf("%v %#v", b, b), "sesame")
	require.ErrorContains(t, byURL(t, address).Ping(within(t, 2*time.Second)), "NOAUTH")
}
