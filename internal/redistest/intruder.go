package redistest

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Intruder is the documented user of the system shop, who does what it may to the locks of the system bank, with all that it may know
// of them.
type Intruder struct {
	Page     string          // of docs/, with the user's rights
	Clients  []*redis.Client // of the user, one for each server
	Keys     []string        // of locks, and helper keys
	Channel  string
	Member   string              // of sets and hashes
	Scripts  []string            // digests
	Messages []string            // that would do harm
	Values   map[string][]string // that would do harm, by what writes them: SET and HSET
	Free     map[string]bool     // rights that name no key and no channel of which one could be forbidden
}

// noRight matches the answers to commands that the user may not use, or not there.
var noRight = regexp.MustCompile("permission|can't access at least one of the|can't publish to the channel")

// commands are those of the user, by their names in its ACL line, each in a way that would do harm to this key or this channel.
func (i Intruder) commands(t testing.TB, key, channel string) map[string][][]any {
	const hour = 3_600_000
	all := map[string][][]any{
		"get": {{"GET", key}}, "mget": {{"MGET", key}}, "exists": {{"EXISTS", key}}, "pttl": {{"PTTL", key}}, "del": {{"DEL", key}},
		"pexpire": {{"PEXPIRE", key, 1}}, "pexpireat": {{"PEXPIREAT", key, 1}}, "zadd": {{"ZADD", key, 1, "wllock:1:ghost"}},
		"zrem": {{"ZREM", key, i.Member}}, "zremrangebyscore": {{"ZREMRANGEBYSCORE", key, "-inf", "+inf"}}, "zcard": {{"ZCARD", key}},
		"zcount": {{"ZCOUNT", key, 0, 1}}, "zrange": {{"ZRANGE", key, 0, -1}}, "zrangebyscore": {{"ZRANGEBYSCORE", key, 0, 1}},
		"zrevrange": {{"ZREVRANGE", key, 0, 0}}, "zrank": {{"ZRANK", key, i.Member}}, "zscore": {{"ZSCORE", key, i.Member}},
		"hget": {{"HGET", key, i.Member}}, "hdel": {{"HDEL", key, i.Member}}, "subscribe": {{"SUBSCRIBE", channel}},
		"eval": {
			{"EVAL", "return redis.call('DEL', KEYS[1])", 1, key}, {"EVAL", "return redis.call('DEL', '" + key + "')", 0},
			{"EVAL", "return redis.call('PUBLISH', ARGV[1], ARGV[2])", 0, channel, i.Messages[0]},
			{"EVAL", "string.match = nil return redis.call('DEL', KEYS[1])", 1, key},
		},
		"time": {{"TIME"}}, "info": {{"INFO"}}, "ping": {{"PING"}}, "scan": {{"SCAN", 0}}, "pubsub|numsub": {{"PUBSUB", "NUMSUB", channel}},
		"script|load": {{"SCRIPT", "LOAD", "return 1"}},
	}
	for _, sha := range i.Scripts {
		all["evalsha"] = append(all["evalsha"], []any{"EVALSHA", sha, 1, key})
	}
	for _, text := range i.Messages {
		all["publish"] = append(all["publish"], []any{"PUBLISH", channel, text})
	}
	for _, value := range i.Values["set"] {
		all["set"] = append(all["set"], []any{"SET", key, value, "PX", hour})
	}
	for _, value := range i.Values["hset"] {
		all["hset"] = append(all["hset"], []any{"HSET", key, "ghost", value})
	}
	rights := map[string]bool{}
	for _, rule := range UserLine(t, i.Page, "shop")[8:] {
		name := strings.TrimPrefix(rule.(string), "+")
		if rights[name] = true; all[name] == nil {
			t.Fatalf("%s is a right of the user that no attack uses", name)
		}
	}
	maps.DeleteFunc(all, func(name string, _ [][]any) bool { return !rights[name] })
	return all
}

// HasNoRight has the user try each command on each key, and on the channel.
func (i Intruder) HasNoRight(t testing.TB) {
	t.Helper()
	for n, key := range i.Keys {
		for name, tries := range i.commands(t, key, i.Channel) {
			for _, args := range tries {
				err := i.Clients[n%len(i.Clients)].Do(t.Context(), args...).Err()
				if i.Free[name] != (err == nil) || err != nil && !noRight.MatchString(err.Error()) {
					t.Errorf("%v: %v", args, err)
				}
			}
		}
	}
}

// Storm has it try so many at random, also on keys and channels of its own that look like those.
func (i Intruder) Storm(t testing.TB, total int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2)) // the same commands each time
	all := map[string]map[string][][]any{}
	for _, key := range i.Keys {
		alike := strings.ReplaceAll(key, "bank:", "shop:")
		all[key], all[alike] = i.commands(t, key, i.Channel), i.commands(t, alike, strings.Replace(i.Channel, "bank", "shop", 1))
	}
	keys := slices.Sorted(maps.Keys(all))
	refused := 0
	for range total {
		tries := all[keys[rnd.IntN(len(keys))]]
		delete(tries, "subscribe") // it takes the connection
		names := slices.Sorted(maps.Keys(tries))
		of := tries[names[rnd.IntN(len(names))]]
		err := i.Clients[rnd.IntN(len(i.Clients))].Do(t.Context(), of[rnd.IntN(len(of))]...).Err()
		if err != nil && noRight.MatchString(err.Error()) {
			refused++
		}
	}
	t.Logf("%d commands, %d of them refused", total, refused)
	if refused < total/4 || refused > total*3/4 {
		t.Errorf("%d of %d were refused: nearly all, or nearly none", refused, total)
	}
}
