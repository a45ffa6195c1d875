package redislock

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/redistest"
)

// TestAMessageIsBelievedAsFarAsItsSenderIsEntitled: one process may have locks of several systems.
func TestAMessageIsBelievedAsFarAsItsSenderIsEntitled(t *testing.T) { // rule R19
	t.Parallel()
	s, b := openNew(t, WithSystem("shop"), WithSystem("bank"))
	a, w := newUser(t, b).lasting(time.Minute), newUser(t, b).lasting(time.Minute)
	before := a.lease("bank:acct:9")
	last := fence(t, before)
	held, _, err := a.enter(t.Context(), "bank:acct:9", func(r *distributed.Request) { r.Prev = before })
	require.NoError(t, err)
	p := w.place("bank:acct:9")
	r := w.other()
	reader := r.place("bank:acct:9", shared)
	now := uint64(time.Now().UnixNano())
	id := fmt.Sprint(attemptBehind(p).Wire.id)
	grant := func(mode, attempt, instance string, fence uint64, count int, key string) string {
		return fmt.Sprintf("g %s %s %s %d %d 0 %s", mode, attempt, instance, fence, count, key)
	}
	for what, forged := range map[string][2]string{
		"another system's channel":    {"shop", grant("x", id, w.name, now, 1000, "bank:acct:9")},
		"another system's lock":       {"shop", grant("x", id, w.name, now, 1000, "shop:acct:9")},
		"another lock":                {"bank", grant("x", id, w.name, now, 1000, "bank:acct:8")},
		"another instance":            {"bank", grant("x", id, a.name, now, 1000, "bank:acct:9")},
		"the end of an instance":      {"bank", grant("x", id, w.name[1:], now, 1000, "bank:acct:9")},
		"another mode":                {"bank", grant("s", id, w.name, now, 1, "bank:acct:9")},
		"a reader that is to write":   {"bank", grant("x", fmt.Sprint(attemptBehind(reader).Wire.id), r.name, now, 1000, "bank:acct:9")},
		"a fence years ahead":         {"bank", grant("x", id, w.name, 9e18, 1000, "bank:acct:9")},
		"no fence":                    {"bank", grant("x", id, w.name, 0, 1000, "bank:acct:9")},
		"more fences than there are":  {"bank", grant("x", id, w.name, now, 99999999, "bank:acct:9")},
		"no fences":                   {"bank", grant("x", id, w.name, now, 0, "bank:acct:9")},
		"contention, another channel": {"shop", fmt.Sprint("w ", attemptBehind(held).Wire.id)},
	} {
		require.Equal(t, int64(1), s.Do("PUBLISH", channelOf(forged[0], b.s.process), forged[1]), "it is heard: %s", what)
	}
	s.Do("PUBLISH", channelOf("bank", b.s.process), fmt.Sprint("u ", attemptBehind(held).Wire.id)) // the last one: all before it were read
	require.Eventually(t, func() bool { return !held.Contended() }, patience, time.Millisecond)
	require.Empty(t, p.Granted(), "no forged grant was believed")
	require.Empty(t, reader.Granted(), "no forged grant was believed")
	release(t, held)
	next := granted(t, p)
	require.Greater(t, fence(t, next), last)
	passOn(t, next, reader)
}

// TestAGrantThatNobodyWaitsForIsGivenBack: its attempt has been left meanwhile.
func TestAGrantThatNobodyWaitsForIsGivenBack(t *testing.T) { // rule R4
	t.Parallel()
	s, b := openNew(t)
	release(t, newUser(t, b).lease(key(t))) // it listens
	id := identity.NewAttempt(1)
	var left wireAttempt
	left.init(&sender{}, b.s.process, id, key(t), instanceName("left"), distributed.Exclusive, time.Minute, time.Minute)
	c := left.enter(noPrev, false)
	b.s.tr.Do(t.Context(), c)
	got := readStanding(c.Reply, time.Now()).grant
	require.NotNil(t, s.Do("GET", key(t)))
	require.Eventually(t, func() bool {
		s.Do("PUBLISH", channelOf("test", b.s.process), fmt.Sprintf("g x %v %s %d %d 0 %s", id, instanceName("left"), got.fence, got.count, key(t)))
		return s.Do("GET", key(t)) == nil
	}, patience, time.Millisecond)
}

// TestAGrantBelowAKnownFenceIsNotBelieved: the instance has had a later one.
func TestAGrantBelowAKnownFenceIsNotBelieved(t *testing.T) { // rule R19
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b).lasting(time.Minute)
	l := u.lease(key(t))
	q := u.other().place(key(t))
	_, p, err := u.enter(t.Context(), key(t), func(r *distributed.Request) { r.Prev = l })
	require.NoError(t, err)
	message := fmt.Sprintf("g x %v %s %d 1000 0 %s", attemptBehind(p).Wire.id, u.name, l.a.Fences.First, key(t))
	require.Equal(t, int64(1), s.Do("PUBLISH", channelOf("test", b.s.process), message))
	held := granted(t, q)
	s.Do("PUBLISH", channelOf("test", b.s.process), fmt.Sprint("u ", attemptBehind(held).Wire.id))
	require.Eventually(t, func() bool { return !held.Contended() }, patience, time.Millisecond)
	require.Empty(t, p.Granted())
	passOn(t, held, p)
}

// TestAPlaceCannotNameItsOwnTTL: whatever is written there, the lock goes on, and no grant lasts for longer than any is allowed to.
func TestAPlaceCannotNameItsOwnTTL(t *testing.T) { // rule R19
	t.Parallel()
	require.Contains(t, enterScript.Text, fmt.Sprintf("\nlocal LONGEST = %d\n", 2*maxTTL.Milliseconds()))
	s, b := openNew(t)
	for _, ttl := range []string{"3600000000000", "99999999999999999999", strings.Repeat("9", 400)} {
		l := newUser(t, b).lasting(time.Minute).lease(key(t))
		w := newUser(t, b).lasting(time.Minute)
		p := w.place(key(t))
		for _, beat := range []int64{time.Now().UnixMilli(), time.Now().Add(time.Hour).UnixMilli()} {
			s.Do("HSET", keysOf(key(t), "")[3], w.name, fmt.Sprintf("%v %s x %s %d", attemptBehind(p).Wire.id, b.s.process, ttl, beat))
		}
		release(t, l)
		require.LessOrEqual(t, s.Do("PTTL", key(t)), maxTTL.Milliseconds())
		release(t, granted(t, p))
	}
	require.ErrorContains(t, newUser(t, b).lasting(maxTTL+1).fails(t.Context(), key(t)), "19200h0m0s")
	release(t, newUser(t, b).lasting(maxTTL).lease(key(t)))
}

// A fence that this process has seen is passed by each grant that it makes, also where the server has lost it and its clock was set back.
func TestAGrantPassesTheFencesSeen(t *testing.T) { // rule R9
	t.Parallel()
	_, b := openNew(t)
	for name, others := range map[string]int{"one waits": 1, "a crowd waits": 2} {
		key := key(t) + name
		l := newUser(t, b).lease(key)
		all := make([]distributed.Place, others)
		for i := range all {
			all[i] = newUser(t, b).place(key)
		}
		seen := uint64(time.Now().Add(time.Hour).UnixNano())
		b.s.space(key).see(seen)
		release(t, l)
		for _, p := range all {
			l := granted(t, p)
			next := fence(t, l)
			require.Greater(t, next, seen, name)
			seen = next
			release(t, l)
		}
	}
}

// TestMessagesPutNoHeartbeatOff: a place whose heartbeats stop is taken for dead.
func TestMessagesPutNoHeartbeatOff(t *testing.T) { // rule R19
	t.Parallel()
	s, b := openNew(t)
	held := newUser(t, b).lease(key(t))
	p := newUser(t, b).place(key(t))
	before := commandStats(s)["zrank"]
	require.Eventually(t, func() bool {
		s.Do("PUBLISH", channelOf("test", b.s.process), fmt.Sprintf("p %v 3600000", attemptBehind(p).Wire.id))
		return commandStats(s)["zrank"] > before+2
	}, patience, 5*time.Millisecond, "heartbeats go on")
	passOn(t, held, p)
}

// subscribers are the connections that hear messages, each with the number of its channels.
func subscribers(s *redistest.Server) (channels []string) {
	for _, one := range regexp.MustCompile(`(?m) sub=([1-9]\d*) `).FindAllStringSubmatch(s.Do("CLIENT", "LIST").(string), -1) {
		channels = append(channels, one[1])
	}
	return channels
}

// TestOneConnectionHearsOfAllSystems: those that are known at the start, and those whose first lock comes later.
func TestOneConnectionHearsOfAllSystems(t *testing.T) { // rule R19
	t.Parallel()
	s, b := openNew(t, WithSystem("shop"))
	require.NoError(t, b.Ping(t.Context()))
	require.Equal(t, []string{"1"}, subscribers(s))
	a, w := newUser(t, b).lasting(time.Minute), newUser(t, b).lasting(time.Minute)
	for _, key := range []string{"shop:p:1", "bank:p:1", "my-lock", "{a}:b"} {
		l := a.lease(key)
		p := w.place(key)
		release(t, l)
		inTime(t, "told by a message", 0, func() { release(t, granted(t, p)) })
	}
	require.Equal(t, []string{"3"}, subscribers(s))
}

// TestARefusedChannelLeavesTheOthers: it is asked for again, and the locks of other systems are handed over by messages meanwhile.
func TestARefusedChannelLeavesTheOthers(t *testing.T) { // rule R19
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "u", "on", ">x", "~*", "&wllock:shop:*", "+@all")
	b := with(t, s.Client(func(o *redis.Options) { o.Username, o.Password = "u", "x" }), WithSystem("shop"))
	u := newUser(t, b).lasting(time.Minute)
	l := u.lease("shop:p:1")
	p := u.other().place("shop:p:1")
	for range 2 {
		err := u.fails(t.Context(), "bank:p:1")
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the user lacks the ACL rules &wllock:bank:*")
	}
	passOn(t, l, p)
	require.Equal(t, []string{"1"}, subscribers(s), "one channel, over the connection that there was")

	s.Do("ACL", "SETUSER", "u", "&wllock:bank:*")
	var again distributed.Lease
	require.Eventually(t, func() bool { again, _, _ = u.enter(t.Context(), "bank:p:1"); return again != nil }, patience, 10*time.Millisecond)
	release(t, ours(again))
	require.Equal(t, []string{"2"}, subscribers(s))
}

// TestManySystemsAreServedByHeartbeats: a client's text may stand where the system does. Only so many are heard of.
func TestManySystemsAreServedByHeartbeats(t *testing.T) {
	var s spaces
	s.channels = conn.NewChannels()
	for i := range mostSpaces {
		require.Equal(t, fmt.Sprint("s", i), s.of(fmt.Sprint("s", i), "P").system)
	}
	require.Same(t, s.of("one more", "P"), s.of("and another", "P"))
	require.True(t, s.of("one more", "P").proven.Load(), "no probe")
	require.Equal(t, "s7", s.of("s7", "P").system)
}

// TestFencesOfOneSystemDoNotCountInAnother: who can write the helper keys of one would raise those of the others.
func TestFencesOfOneSystemDoNotCountInAnother(t *testing.T) { // rule R19
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b)
	s.Do("SET", keysOf("shop:p:1", "")[1], "9000000000000000999", "PX", 60000)
	l := u.lease("shop:p:1")
	require.Greater(t, fence(t, l), uint64(9e18))
	other := u.lease("bank:p:1")
	require.Less(t, fence(t, other), uint64(time.Now().Add(time.Hour).UnixNano()))
	release(t, l)
	release(t, other)
}
