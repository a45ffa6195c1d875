package redlock

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
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

// bank are servers with the documented users of two systems: bank, whose locks are passed on, and shop, whose user attacks them.
func bank(t *testing.T) (shop []redis.UniversalClient, all testlocker.Victims) {
	t.Helper()
	s := start(t, 3)
	fences := WithQuorumFences()
	all = testlocker.Victims{One: s.by(s.as("bank"), fences), Other: s.by(s.as("bank"), fences)}
	all.Key, all.Load = "bank:acct:9", "bank:acct:{9}:shop:1"
	return s.as("shop"), all
}

// keysAround are the keys of a victim, and its helper keys.
func keysAround(a *attempt, load string) []string {
	keys := []string{markOf("bank"), prefixOf("bank") + "ttls", prefixOf("bank") + "r:" + a.token}
	for _, key := range []string{a.key(), load} {
		keys = append(keys, key, helper("q:", key), helper("w:", key), fenceKey(key), brokenKey(key))
	}
	return keys
}

// anywhere are the rights of the documented user that name no key and no channel of which one could be forbidden.
var anywhere = []string{"time", "info", "pubsub|numsub", "scan", "ping"}

// noRight matches the answers to commands that the user may not use, or not there.
var noRight = regexp.MustCompile("permission|can't access at least one of the|can't publish to the channel")

// commandsOf are those that the documented user has, by their names in its ACL line, each in a way that would do harm to this attempt, with
// this key and this channel.
func commandsOf(a *attempt, key, channel string) map[string][][]any {
	const hour = 3_600_000
	vote := func(number int) []any {
		return []any{"PUBLISH", channel, fmt.Sprintf("vote %s %d 0 99999999999 0 %s", a.token, number, a.key())}
	}
	return map[string][][]any{
		"get": {{"GET", key}}, "mget": {{"MGET", key}},
		"set": {{"SET", key, "9000000000000000999", "PX", hour}, {"SET", key, "0 3600000 0 0 run"}}, "del": {{"DEL", key}},
		"exists": {{"EXISTS", key}}, "pttl": {{"PTTL", key}}, "pexpire": {{"PEXPIRE", key, 1}},
		"zadd": {{"ZADD", key, 1, "wllock:1:ghost"}}, "zrem": {{"ZREM", key, a.token}},
		"zcard": {{"ZCARD", key}}, "zrange": {{"ZRANGE", key, 0, -1}},
		"zrangebyscore": {{"ZRANGEBYSCORE", key, 0, 1}}, "zcount": {{"ZCOUNT", key, 0, 1}},
		"zrevrange": {{"ZREVRANGE", key, 0, 0}}, "zrank": {{"ZRANK", key, a.token}}, "zscore": {{"ZSCORE", key, a.token}},
		"zremrangebyscore": {{"ZREMRANGEBYSCORE", key, "-inf", "+inf"}},
		"hset":             {{"HSET", key, a.token, "1 99999999999 x 1 i"}}, "hget": {{"HGET", key, a.token}},
		"hdel": {{"HDEL", key, a.token}}, "evalsha": {{"EVALSHA", leaveScript.SHA, 1, key}},
		"eval": {
			{"EVAL", "return redis.call('DEL', KEYS[1])", 1, key}, {"EVAL", "return redis.call('DEL', '" + key + "')", 0},
			{"EVAL", "return redis.call('PUBLISH', ARGV[1], 'gone')", 0, channel}, {"EVAL", helloScript.Text, 1, key, 1, hour},
		},
		"publish":   {vote(1), vote(2), {"PUBLISH", channel, fmt.Sprintf("gone %s - %s", a.token, a.key())}},
		"subscribe": {{"SUBSCRIBE", channel}},
		"time":      {{"TIME"}}, "info": {{"INFO"}}, "pubsub|numsub": {{"PUBSUB", "NUMSUB", channel}}, "scan": {{"SCAN", 0}}, "ping": {{"PING"}},
	}
}

// TestAnotherSystemsUserHasNoRightToALock: each command of its ACL line, with what it could know of another's locks, on their keys, helper
// keys and channels.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) { // rule Q11
	t.Parallel()
	shop, all := bank(t)
	all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) {
		a := p.(place).a
		channel := prefixOf("bank") + a.b.process
		for _, rule := range redistest.UserLine(t, "redlock.md", "shop")[8:] {
			require.Contains(t, commandsOf(a, "", ""), strings.TrimPrefix(rule.(string), "+"), "a command of the user that this test does not try")
		}
		for i, key := range keysAround(a, all.Load) {
			for name, tries := range commandsOf(a, key, channel) {
				for _, args := range tries {
					err := shop[i%len(shop)].(*redis.Client).Do(t.Context(), args...).Err()
					if slices.Contains(anywhere, name) {
						require.NoError(t, err, "%v", args)
					} else {
						require.Error(t, err, "%v", args)
						require.Regexp(t, noRight, err.Error(), "%v", args)
					}
				}
			}
		}
	})
}

// TestAnotherSystemsUserDisturbsNobody: random commands of its ACL line, on another's keys and channels, and on its own that look like
// them.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) { // rule Q11
	testscope.Long(t, "a storm of commands")
	shop, all := bank(t)
	rnd := rand.New(rand.NewPCG(1, 2)) // the same commands each time
	longest := all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) {
		a := p.(place).a
		channel, keys := prefixOf("bank")+a.b.process, keysAround(a, all.Load)
		var refused int
		total := testscope.Scale(10_000, 100_000)
		for range total {
			key, at := keys[rnd.IntN(len(keys))], channel
			if rnd.IntN(2) == 0 {
				key, at = strings.ReplaceAll(key, "bank:", "shop:"), strings.Replace(at, "bank", "shop", 1)
			}
			tries := commandsOf(a, key, at)
			delete(tries, "subscribe") // it takes the connection
			names := slices.Sorted(maps.Keys(tries))
			of := tries[names[rnd.IntN(len(names))]]
			err := shop[rnd.IntN(len(shop))].(*redis.Client).Do(t.Context(), of[rnd.IntN(len(of))]...).Err()
			if err != nil && noRight.MatchString(err.Error()) {
				refused++
			}
		}
		t.Logf("%d commands, %d of them refused", total, refused)
		require.Greater(t, refused, total/4)
		require.Less(t, refused, total*3/4)
	})
	testscope.InTime(t, longest, slowestBeat/2, "the longest wait: the lock was passed on by messages")
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

// TestVouchSpeaksForOneSystem: for those that are known, or for the first that comes. A later one may be in use by others.
func TestVouchSpeaksForOneSystem(t *testing.T) { // rule Q5
	t.Parallel()
	for name, known := range map[string]bool{"known": true, "to come": false} {
		t.Run(name, func(t *testing.T) {
			s := start(t, 3)
			b := s.by(s.direct())
			if known {
				require.NoError(t, b.Probe(t.Context(), distributed.Probe{Key: "young:ping:ping", TTL: time.Second}))
			}
			require.NoError(t, b.Vouch(t.Context()))
			require.NoError(t, leaseOf(t, b, request("young:k", "a")).Release(t.Context()))
			req := request("younger:k", "a")
			req.NoWait = true
			_, _, err := b.Enter(t.Context(), req)
			require.ErrorContains(t, err, "less than the longest lease TTL ago")
			require.NoError(t, leaseOf(t, s.by(s.direct()), request("young:k2", "a")).Release(t.Context()), "servers remember it")
		})
	}
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
