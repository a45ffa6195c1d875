package redislock

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

// victim is what another system's user may know of a lock, a place and a process.
type victim struct {
	keys     []string // of locks, and helper keys
	channel  string
	attempt  string
	instance string
}

// anywhere are the rights of the documented user that name no key and no channel.
var anywhere = []string{"time", "info", "script|load", "ping"}

// noRight matches the answers to commands that the user may not use, or not there.
var noRight = regexp.MustCompile("permission|can't access at least one of the|can't publish to the channel")

// commands are those that the documented user has, by their names in its ACL line, each in a way that would do harm to what has this key
// or this channel.
func (v victim) commands(key, channel string) map[string][][]any {
	const hour = 3_600_000
	far := time.Now().Add(time.Hour).UnixMilli()
	var scripts [][]any
	for _, s := range allScripts {
		scripts = append(scripts, []any{"EVALSHA", s.SHA, 1, key})
	}
	grant := func(fence any) []any {
		return []any{"PUBLISH", channel, fmt.Sprintf("g x %s %s %v 1000 0 %s", v.attempt, v.instance, fence, v.keys[0])}
	}
	return map[string][][]any{
		"set": {{"SET", key, "9000000000000000999", "PX", hour}}, "del": {{"DEL", key}}, "pexpire": {{"PEXPIRE", key, 1}},
		"pexpireat": {{"PEXPIREAT", key, 1}}, "zadd": {{"ZADD", key, 1, "ghost"}}, "zrem": {{"ZREM", key, v.instance}},
		"zremrangebyscore": {{"ZREMRANGEBYSCORE", key, "-inf", "+inf"}}, "hset": {{"HSET", key, "ghost", fmt.Sprintf("1 procg x %d %d", hour, far)}},
		"hdel": {{"HDEL", key, v.instance}}, "hget": {{"HGET", key, v.instance}}, "mget": {{"MGET", key}}, "exists": {{"EXISTS", key}}, "pttl": {{"PTTL", key}},
		"zcard": {{"ZCARD", key}}, "zcount": {{"ZCOUNT", key, 0, 1}}, "zrange": {{"ZRANGE", key, 0, -1}}, "zrank": {{"ZRANK", key, v.instance}},
		"zscore": {{"ZSCORE", key, v.instance}}, "evalsha": scripts,
		"eval": {
			{"EVAL", "return redis.call('DEL', KEYS[1])", 1, key}, {"EVAL", "return redis.call('DEL', '" + key + "')", 0},
			{"EVAL", "return redis.call('PUBLISH', ARGV[1], 'l 1')", 0, channel}, {"EVAL", "string.match = nil return redis.call('DEL', KEYS[1])", 1, key},
		},
		"publish":   {grant("9000000000000000000"), grant(time.Now().UnixNano()), {"PUBLISH", channel, fmt.Sprintf("p %s %d", v.attempt, hour)}, {"PUBLISH", channel, "u " + v.attempt}},
		"subscribe": {{"SUBSCRIBE", channel}}, "time": {{"TIME"}}, "info": {{"INFO"}}, "script|load": {{"SCRIPT", "LOAD", leaveScript.Text}}, "ping": {{"PING"}},
	}
}

// bank is a server with the documented users of two systems: bank, whose locks are passed on, and shop, whose user attacks them.
func bank(t *testing.T) (shop *redis.Client, all testlocker.Victims, known func(p distributed.Place) victim) {
	t.Helper()
	s := redistest.Start(t)
	one, other := openFor(t, s, "bank"), openFor(t, s, "bank")
	shop = s.Client(s.AddUser(t, "redis.md", "shop"))
	all = testlocker.Victims{One: one, Other: other, Key: "bank:acct:9", Load: "bank:acct:{9}:shop:1"}
	return shop, all, func(p distributed.Place) victim {
		v := victim{keys: []string{all.Key, all.Load}, channel: channelOf("bank", other.s.process), attempt: fmt.Sprint(attemptBehind(p).Wire.id), instance: testlocker.Waiter}
		for _, key := range []string{all.Key, all.Load} {
			helpers := keysOf(key, testlocker.Waiter)
			v.keys = append(v.keys, helpers[1:]...)
			v.keys = append(v.keys, helperBase(key)+brokenKey)
		}
		v.keys = append(v.keys, conn.SpaceOf("bank")+"ttl")
		return v
	}
}

// TestAnotherSystemsUserHasNoRightToALock: each command of its ACL line, with what it could know of another's locks, on their keys, helper
// keys and channels.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) { // rule R19
	t.Parallel()
	shop, all, known := bank(t)
	all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) {
		v := known(p)
		for _, rule := range userLine(t)[8:] {
			require.Contains(t, v.commands("", ""), strings.TrimPrefix(rule.(string), "+"), "a command of the user that this test does not try")
		}
		for _, key := range v.keys {
			for name, tries := range v.commands(key, v.channel) {
				for _, args := range tries {
					err := shop.Do(t.Context(), args...).Err()
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

// TestAnotherSystemsUserDisturbsNobody: random commands of its ACL line, on another's keys and channels, and on its own that look like them.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) { // rule R19
	testscope.Long(t, "a storm of commands")
	shop, all, known := bank(t)
	rnd := rand.New(rand.NewPCG(1, 2)) // the same commands each time
	longest := all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) {
		v := known(p)
		type target struct{ key, channel string }
		targets := []target{}
		for _, key := range v.keys {
			alike := strings.ReplaceAll(key, "bank:", "shop:")
			targets = append(targets, target{key, v.channel}, target{alike, strings.Replace(v.channel, "bank", "shop", 1)})
		}
		var done, refused int
		for done < testscope.Scale(10_000, 100_000) {
			at := targets[rnd.IntN(len(targets))]
			tries := v.commands(at.key, at.channel)
			delete(tries, "subscribe") // it takes the connection
			names := slices.Sorted(maps.Keys(tries))
			of := tries[names[rnd.IntN(len(names))]]
			done++
			if err := shop.Do(t.Context(), of[rnd.IntN(len(of))]...).Err(); err != nil && noRight.MatchString(err.Error()) {
				refused++
			}
		}
		t.Logf("%d commands, %d of them refused", done, refused)
		require.Greater(t, refused, done/4)
		require.Less(t, refused, done*3/4)
	})
	testscope.InTime(t, longest, slowestHeartbeat/2, "the longest wait: the lock was passed on by messages")
}
