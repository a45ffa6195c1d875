package redlock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// as returns clients of the user that the documented ACL line makes for a system, with further rules, on every server.
func (s *servers) as(system string, more ...any) (all []redis.UniversalClient) {
	for _, one := range s.all {
		all = append(all, one.Client(one.AddUser(s.t, "redlock.md", system, more...)))
	}
	return all
}

// by returns a backend with these clients.
func (s *servers) by(clients []redis.UniversalClient, opts ...Option) *Backend {
	s.t.Helper()
	b, err := New(clients, opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, b.Close()) })
	return b
}

// TestProbeNamesTheRightsThatAreMissing: with the patterns of the system.
func TestProbeNamesTheRightsThatAreMissing(t *testing.T) { // rule Q11
	t.Parallel()
	s := start(t, 3)
	probe := func(clients []redis.UniversalClient) error {
		return s.by(clients).Probe(t.Context(), distributed.Probe{Key: "shop:ping:ping", TTL: time.Second})
	}
	require.NoError(t, probe(s.as("shop")))
	for want, rules := range map[string][]any{
		"+zcount +hget":      {"-zcount", "-hget"},
		"+pubsub|numsub":     {"-pubsub"},
		"+publish":           {"-publish"},
		"&wllock:shop:*":     {"resetchannels", "&wllock:shops:*"},
		"~wllock:shop:*":     {"resetkeys", "~shop:*", "~wllock:shops:*"},
		"for the lock's key": {"resetkeys", "~wllock:shop:*"},
	} {
		err := probe(s.as("shop", append([]any{"nocommands"}, append(redistest.UserLine(t, "redlock.md", "shop")[8:], rules...)...)...))
		require.ErrorIs(t, err, distributed.ErrRefused, want)
		require.ErrorContains(t, err, want)
		s.as("shop", "reset") // the next one begins anew
	}
	for _, one := range s.all {
		require.Empty(t, one.Do("KEYS", "*probe*"), "no key is left")
	}
}

// TestASystemWithoutRightsStopsNoOther: one process may be asked for locks of both.
func TestASystemWithoutRightsStopsNoOther(t *testing.T) { // rule Q11
	t.Parallel()
	s := start(t, 3)
	b := s.by(s.as("shop"))
	_, _, err := b.Enter(t.Context(), request("bank:k", "a"))
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "~wllock:bank:*")
	require.Zero(t, b.space("bank").met.Load(), "nothing was learned: the right may come")
	for _, one := range s.all {
		one.Do("CLIENT", "KILL", "USER", "shop") // new connections ask about both
	}
	require.Eventually(t, func() bool {
		l, p, err := b.Enter(t.Context(), request("shop:k", "a"))
		if p != nil {
			l = <-p.Granted()
		}
		return err == nil && l.Release(t.Context()) == nil
	}, patience, time.Millisecond)
	require.Zero(t, b.space("bank").met.Load())
}

// TestEachSystemHasItsOwnMark: what another says of a server, how old it is and how long leases are, changes nothing.
func TestEachSystemHasItsOwnMark(t *testing.T) { // rule Q5
	t.Parallel()
	s := start(t, 3)
	b := s.by(s.direct())
	young := request("young:k", "a") // a system that these servers have never seen
	young.NoWait = true
	_, _, err := b.Enter(t.Context(), young)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "less than the longest lease TTL ago")
	for _, one := range s.all { // old, without a lease; young, and with long ones
		one.Do("SET", markOf("shop"), "0 0 0 0 "+strings.Split(one.Do("GET", markOf("shop")).(string), " ")[4])
		one.Do("SET", markOf("bank"), fmt.Sprintf("%d 3600000 0 %[1]d run", time.Now().UnixMilli()))
	}
	require.NoError(t, leaseOf(t, b, request("shop:k", "a")).Release(t.Context()))
	_, _, err = b.Enter(t.Context(), young)
	require.ErrorContains(t, err, "less than the longest lease TTL ago")
	require.Zero(t, b.longestTTL(b.space("none")))
}

// TestARestartIsNoticedForEachSystem: also for one that a process asks about after it has a connection, and on a connection that is made
// after it has asked.
func TestARestartIsNoticedForEachSystem(t *testing.T) { // rule Q5
	t.Parallel()
	s := start(t, 3)
	b := s.by(s.direct())
	require.NoError(t, b.Ping(t.Context()))
	for round := range 2 {
		for _, one := range s.all {
			one.Do("SET", markOf("bank"), "1000 0 0 0 anotherrun") // kept over a restart that lost the votes
			if round == 1 {
				one.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
		}
		req := request("bank:k", "a")
		req.NoWait = true
		require.Eventually(t, func() bool {
			l, _, err := b.Enter(t.Context(), req)
			require.Nil(t, l)
			return strings.Contains(err.Error(), "less than the longest lease TTL ago")
		}, patience, time.Millisecond)
	}
}

// TestVouchSpeaksForKnownSystems: one that another process may use by then is none of its business.
func TestVouchSpeaksForKnownSystems(t *testing.T) { // rule Q5
	t.Parallel()
	s := start(t, 3)
	b := s.by(s.direct())
	require.ErrorContains(t, b.Vouch(t.Context()), "for no system")
	require.NoError(t, b.Probe(t.Context(), distributed.Probe{Key: "young:ping:ping", TTL: time.Second}))
	require.NoError(t, b.Vouch(t.Context()))
	require.NoError(t, leaseOf(t, b, request("young:k", "a")).Release(t.Context()))
	req := request("younger:k", "a")
	req.NoWait = true
	_, _, err := b.Enter(t.Context(), req)
	require.ErrorContains(t, err, "less than the longest lease TTL ago")
}

// TestAKeyAmongTheHelperKeysIsRefused: also of a system that is called so.
func TestAKeyAmongTheHelperKeysIsRefused(t *testing.T) { // rule Q11
	t.Parallel()
	s := start(t, 3)
	b := s.by(s.direct())
	for _, key := range []string{helper("q:", "shop:1"), conn.HelperPrefix + "ttl:shop"} {
		_, _, err := b.Enter(t.Context(), request(key, "a"))
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		require.ErrorContains(t, err, `begins with "wllock:"`)
		require.ErrorIs(t, b.Probe(t.Context(), distributed.Probe{Key: key, TTL: time.Second}), distributed.ErrInvalidKey)
		_, err = b.Inspect(t.Context(), key)
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		_, err = b.Break(t.Context(), distributed.Inspection{Key: key, State: "x", Holders: []distributed.Holder{{Instance: "i"}}}, "me", "why")
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
	}
	_, _, err := b.List(t.Context(), "wllock:", "", 10)
	require.ErrorIs(t, err, distributed.ErrInvalidKey)

	l := leaseOf(t, s.by(s.direct(), WithQuorumFences()), request("shop:k", "a"))
	require.NoError(t, l.Refill(t.Context()))
	require.Equal(t, []string{"shop:k"}, slices.Compact(listed(t, b, "", 10)), "and no list has a helper key")
	require.NoError(t, l.Release(t.Context()))
}
