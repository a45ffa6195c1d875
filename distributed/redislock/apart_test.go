package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// bank is a server with the documented users of two systems: bank, whose locks are passed on, and shop, whose user attacks them with what
// it may know of a place.
func bank(t *testing.T) (all testlocker.Victims, shop func(p distributed.Place) redistest.Intruder) {
	t.Helper()
	s := redistest.Start(t)
	one, other := openFor(t, s, "bank"), openFor(t, s, "bank")
	all = testlocker.Victims{One: one, Other: other, Key: "bank:acct:9", Load: "bank:acct:{9}:shop:1"}
	return all, func(p distributed.Place) redistest.Intruder {
		attempt := attemptBehind(p).Wire.id
		grant := func(fence any) string {
			return fmt.Sprintf("g x %v %s %v 1000 0 %s", attempt, testlocker.Waiter, fence, all.Key)
		}
		i := redistest.Intruder{
			Page: "redis.md", Clients: []*redis.Client{s.Client(s.AddUser(t, "redis.md", "shop"))},
			Keys: []string{all.Key, all.Load, conn.SpaceOf("bank") + "ttl"}, Channel: channelOf("bank", other.s.process), Member: testlocker.Waiter,
			Messages: []string{
				fmt.Sprint("l ", attempt), grant("9000000000000000999"), grant(time.Now().UnixNano()), fmt.Sprint("w ", attempt), fmt.Sprint("u ", attempt),
				fmt.Sprint("n ", attempt), fmt.Sprintf("p %v 3600000", attempt),
			},
			Values: map[string][]string{
				"set":  {"9000000000000000999"},
				"hset": {fmt.Sprintf("1 procg x 3600000 %d", time.Now().Add(time.Hour).UnixMilli())},
			},
			Free: map[string]bool{"time": true, "info": true, "script|load": true, "ping": true},
		}
		for _, one := range allScripts {
			i.Scripts = append(i.Scripts, one.SHA)
		}
		for _, key := range []string{all.Key, all.Load} {
			helpers := keysOf(key, testlocker.Waiter)
			i.Keys = append(append(i.Keys, helpers[1:]...), helperBase(key)+brokenKey)
		}
		return i
	}
}

// TestAnotherSystemsUserHasNoRightToALock: each command of its ACL line, with what it could know of another's locks, on their keys, helper
// keys and channels.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) { // rule R19
	t.Parallel()
	all, shop := bank(t)
	all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) { shop(p).HasNoRight(t) })
}

// TestAnotherSystemsUserDisturbsNobody: random commands of its ACL line, on another's keys and channels, and on its own that look like them.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) { // rule R19
	testscope.Long(t, "a storm of commands")
	all, shop := bank(t)
	longest := all.Undisturbed(t, func(_ distributed.Lease, p distributed.Place) { shop(p).Storm(t, testscope.Scale(10_000, 100_000)) })
	testscope.InTime(t, longest, slowestHeartbeat/2, "the longest wait: the lock was passed on by messages")
}
