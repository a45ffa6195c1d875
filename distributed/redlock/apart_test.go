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
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// as returns clients of the user that the documented ACL line makes for a system, with further rules, on every server.
func (s *servers) as(system string, more ...any) []redis.UniversalClient {
	return s.connect(func(i int, o *redis.Options) { s.all[i].AddUser(s.t, "redlock.md", system, more...)(o) })
}

// bank are servers with the documented users of two systems: bank, whose locks are passed on, and shop, whose user attacks them with what it
// may know of a place.
func bank(t *testing.T) (all testlocker.Victims, shop func(p distributed.Place) redistest.Intruder) {
	t.Helper()
	s := start(t, 3)
	fences := WithQuorumFences()
	all = testlocker.Victims{One: with(t, s.as("bank"), fences), Other: with(t, s.as("bank"), fences), Key: "bank:acct:9", Load: "bank:acct:{9}:shop:1"}
	return all, func(p distributed.Place) redistest.Intruder {
		a := bidOf(p)
		vote := func(number int) string { return fmt.Sprintf("vote %s %d 0 99999999999 0 %s", a.token, number, a.key()) }
		i := redistest.Intruder{
			Page: "redlock.md", Keys: []string{markOf("bank"), prefixOf("bank") + "ttls", prefixOf("bank") + "r:" + a.token},
			Channel: prefixOf("bank") + a.b.process, Member: a.token, Scripts: []string{leaveScript.SHA, helloScript.SHA},
			Messages: []string{fmt.Sprintf("gone %s - %s", a.token, a.key()), vote(1), vote(2)},
			Values:   map[string][]string{"set": {"9000000000000000999", "0 3600000 0 0 run"}, "hset": {"1 99999999999 x 1 i"}},
			Free:     map[string]bool{"time": true, "info": true, "pubsub|numsub": true, "scan": true, "ping": true},
		}
		for _, c := range s.as("shop") {
			i.Clients = append(i.Clients, c.(*redis.Client))
		}
		for _, key := range []string{all.Key, all.Load} {
			i.Keys = append(i.Keys, key, helper("q:", key), helper("w:", key), fenceKey(key), brokenKey(key))
		}
		return i
	}
}

// TestAnotherSystemsUserHasNoRightToALock: each command of its ACL line, with what it could know of another's locks, on their keys, helper
// keys and channels.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) { // rule Q11
	t.Parallel()
	all, shop := bank(t)
	all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) { shop(p).HasNoRight(t) })
}

// TestAnotherSystemsUserDisturbsNobody: random commands of its ACL line, on another's keys and channels, and on its own that look like
// them.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) { // rule Q11
	testscope.Long(t, "a storm of commands")
	all, shop := bank(t)
	longest := all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) { shop(p).Storm(t, testscope.Scale(10_000, 100_000)) })
	testscope.InTime(t, longest, slowestBeat/2, "the longest wait: the lock was passed on by messages")
}

// TestProbeNamesTheRightsThatAreMissing: with the patterns of the system.
func TestProbeNamesTheRightsThatAreMissing(t *testing.T) { // rule Q11
	t.Parallel()
	s := start(t, 3)
	probe := func(clients []redis.UniversalClient) error {
		return with(t, clients).Probe(t.Context(), distributed.Probe{Key: "shop:ping:ping", TTL: time.Second})
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
	b := with(t, s.as("shop"))
	err := refusal(t, b, request("bank:k", "a"))
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "~wllock:bank:*")
	require.Zero(t, b.space("bank").met.Load(), "nothing was learned: the right may come")
	s.do("CLIENT", "KILL", "USER", "shop") // new connections ask about both
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
	s, b := three(t)
	young := request("young:k", "a", noWait) // a system that these servers have never seen
	err := refusal(t, b, young)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "less than the longest lease TTL ago")
	for _, one := range s.all { // old, without a lease; young, and with long ones
		one.Do("SET", markOf("shop"), "0 0 0 0 "+strings.Split(one.Do("GET", markOf("shop")).(string), " ")[4])
		one.Do("SET", markOf("bank"), fmt.Sprintf("%d 3600000 0 %[1]d run", time.Now().UnixMilli()))
	}
	release(t, leaseOf(t, b, request("shop:k", "a")))
	require.ErrorContains(t, refusal(t, b, young), "less than the longest lease TTL ago")
	require.Zero(t, b.longestTTL(b.space("none")))
}

// TestARestartIsNoticedForEachSystem: also for one that a process asks about after it has a connection, and on a connection that is made
// after it has asked.
func TestARestartIsNoticedForEachSystem(t *testing.T) { // rule Q5
	s, b := three(t)
	require.NoError(t, b.Ping(t.Context()))
	for round := range 2 {
		s.do("SET", markOf("bank"), "1000 0 0 0 anotherrun") // kept over a restart that lost the votes
		if round == 1 {
			s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}
		require.Eventually(t, func() bool {
			err := refusal(t, b, request("bank:k", "a", noWait))
			return strings.Contains(err.Error(), "less than the longest lease TTL ago")
		}, patience, time.Millisecond)
	}
}

// TestVouchSpeaksForOneSystem: for those that are known, or for the first that comes. A later one may be in use by others.
func TestVouchSpeaksForOneSystem(t *testing.T) { // rule Q5
	t.Parallel()
	for name, known := range map[string]bool{"known": true, "to come": false} {
		t.Run(name, func(t *testing.T) {
			s := start(t, 3)
			b := with(t, s.direct())
			if known {
				require.NoError(t, b.Probe(t.Context(), distributed.Probe{Key: "young:ping:ping", TTL: time.Second}))
			}
			require.NoError(t, b.Vouch(t.Context()))
			release(t, leaseOf(t, b, request("young:k", "a")))
			require.ErrorContains(t, refusal(t, b, request("younger:k", "a", noWait)), "less than the longest lease TTL ago")
			release(t, leaseOf(t, with(t, s.direct()), request("young:k2", "a"))) // servers remember it
		})
	}
}

// TestAKeyAmongTheHelperKeysIsRefused: also of a system that is called so.
func TestAKeyAmongTheHelperKeysIsRefused(t *testing.T) { // rule Q11
	s, b := three(t)
	for _, key := range []string{helper("q:", "shop:1"), conn.HelperPrefix + "ttl:shop"} {
		err := refusal(t, b, request(key, "a"))
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

	l := leaseOf(t, with(t, s.direct(), WithQuorumFences()), request("shop:k", "a"))
	require.NoError(t, l.Refill(t.Context()))
	require.Equal(t, []string{"shop:k"}, slices.Compact(listed(t, b, "", 10)), "and no list has a helper key")
	release(t, l)
}
