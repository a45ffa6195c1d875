package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

// conventional is a client of the common convention, by hand: SET key unique NX PX, and DEL if the value is its own.
type conventional struct {
	c   *redis.Client
	key string
}

var ownDel = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (c conventional) lock(ctx context.Context) bool {
	return c.c.SetNX(ctx, c.key, "unique", time.Minute).Val()
}

func (c conventional) unlock(ctx context.Context) bool {
	n, _ := ownDel.Run(ctx, c.c, []string{c.key}, "unique").Int()
	return n == 1
}

// Whatever else stands in the lock's key is respected, and named to those whom it keeps out: a lock of another library, a cache under the
// same name, a value that looks like ours, or that an older version wrote. "-" once meant "no lease to release" to enter.
func TestForeignValuesAreRespectedAndNamed(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	const other, none = "a client that is not wllock, with ", "no string"
	for value, named := range map[string]string{
		"token": other + "a string of 5 bytes", `{"qty":3}`: other + "a string of 9 bytes that never expires", none: other + "a value that is no string",
		"-": other + "a string of 1 bytes", "-Zq0base64url": other + "a string of 13 bytes", "": other + "a string of 0 bytes",
		"1795245543793029": other + "a string of 16 bytes", "wllock": other + "a string of 6 bytes",
		"wllock-like:x:a:1:b:2": other + "a string of 21 bytes", "wllock:y:5000:1": "",
		"wllock:x:P:1795259432781020:i:1795259433090872000": "i", "wllock:s:1795259433090872000": "",
	} {
		for _, state := range []string{"", "1795245543793029", "1795245543793029999 1 0"} { // helper keys of ours are left
			key := fmt.Sprint("shop:", len(named), ":", len(value), value, state)
			dump := func() any { return s.Do("DUMP", key) }
			if value == none {
				s.Do("HSET", key, "redisson", "1") // as Redisson's locks are
			} else {
				s.Do("SET", key, value)
			}
			if forEver := strings.Contains(named, "never"); !forEver {
				s.Do("PEXPIRE", key, 60_000)
			}
			if state != "" {
				s.Do("SET", keysOf(key, "")[1], state)
			}
			before := dump()
			modes := []func(*distributed.Request){exclusive, shared}
			if strings.HasPrefix(value, "wllock:s:") { // which a reader joins
				modes = modes[:1]
			}
			for _, mode := range modes {
				u := newUser(t, b).lasting(5 * time.Second)
				err := u.fails(t.Context(), key, noWait, mode)
				require.ErrorIs(t, err, distributed.ErrHeld, value)
				held, _ := errors.AsType[*distributed.HeldError](err)
				require.Equal(t, named, held.Holder, value)
				p := u.place(key, mode)
				require.Equal(t, named, p.Holder())
				require.NoError(t, p.Leave(t.Context()))
				require.Equal(t, before, dump())
				left := s.Do("PTTL", key).(int64)
				require.True(t, left == -1 || left > 30_000, "%v ms are left: it is not cut to a T of ours", left)
			}
		}
	}
}

func TestGapBelowAMillisecondIsOne(t *testing.T) {
	t.Parallel()
	s, b := openNew(t, WithInteropGap(500*time.Microsecond))
	u := newUser(t, b).lasting(5 * time.Second)
	l := u.lease(key(t))
	p := u.other().place(key(t))
	release(t, l)
	require.Contains(t, s.Do("GET", keysOf(key(t), "")[1]), " ", "the gap is off, and nobody said so")
	release(t, granted(t, p))
}

// TestGapEndsThoughTheClockIsSetBack: the end of the gap was noted by a clock that is set back afterwards.
func TestGapEndsThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const gap = 250 * time.Millisecond // longer than a busy machine takes to read the note
	s, b := openNew(t, WithInteropGap(gap))
	u := newUser(t, b).lasting(5 * time.Second)
	l := u.lease(key(t))
	p := u.other().place(key(t))
	state := keysOf(key(t), "")[1]
	release(t, l)
	noted, _ := s.Do("GET", state).(string)
	words := strings.Fields(noted)
	require.Len(t, words, 5, noted)
	free, err := strconv.ParseInt(words[2], 10, 64)
	require.NoError(t, err)
	s.Do("SET", state, fmt.Sprintf("%s %s %d", words[0], words[1], free+time.Hour.Milliseconds()))
	inTime(t, "after the clock was set back", 2*gap, func() { release(t, granted(t, p)) })
	s.Do("SET", state, fmt.Sprintf("%s 0 %d", words[0], free+time.Hour.Milliseconds()))
	inTime(t, "with nobody queued", 2*gap, func() { release(t, u.get(key(t))) })
}

// What a version with another format keeps is no lock of a client that is not wllock: it is refused by name, and who waits reads it.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	write := func(key string) { s.Do("SET", key, "wllock9:x:P", "PX", 600_000) }
	testlocker.RefusesOtherFormats(t, testlocker.Asker{T: t, B: b, TTL: time.Minute}, write)
	_, err := b.Inspect(t.Context(), "other-0")
	require.ErrorContains(t, err, "format 9")
	a := testlocker.Asker{T: t, B: b, Key: "later", TTL: 2 * time.Second}
	holder := a.Lease("holder")
	p := a.Place("waiter")
	write("later")
	require.Eventually(t, func() bool {
		return strings.Contains(p.Holder(), "another version of wllock, in format 9")
	}, testlocker.Patience, time.Millisecond)
	testlocker.Lost(t, holder)
	require.NoError(t, p.Leave(t.Context()))
}

// short gives the lock the key after its second colon: "orders:42" for "shop:name:orders:42".
func short(full string) string { return strings.SplitN(full, ":", 3)[2] }

func TestWithKeyLocksWhatOthersLock(t *testing.T) { // rule R12
	t.Parallel()
	for _, name := range []string{"my-lock", "orders:42", "{tag}:7", "a}b{c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t) // with no keys of another
			u := newUser(t, open(t, s.Addr, WithKey(short))).lasting(time.Minute)
			other := conventional{s.Client(), name}
			l := u.lease("shop:name:" + name)
			require.False(t, other.lock(t.Context()), "it must see our lock")
			slot := slotOf(name)
			for _, k := range s.Client().Keys(t.Context(), "*").Val() {
				if k != name {
					require.True(t, strings.HasPrefix(k, spaceOf(name)+"{"), k)
					require.Equal(t, slot, slotOf(k), k)
				}
			}
			passOn(t, l, u.other().place("shop:name:"+name))

			require.True(t, other.lock(t.Context()), "our release must free the key")
			require.ErrorIs(t, u.fails(t.Context(), "shop:name:"+name, noWait), distributed.ErrHeld)
			p := u.place("shop:name:" + name)
			time.Sleep(20 * time.Millisecond)
			require.Empty(t, p.Granted())
			inTime(t, "after a foreigner's unlock", 75*time.Millisecond, func() {
				require.True(t, other.unlock(t.Context()), "we must not touch its lock")
				release(t, granted(t, p))
			})
		})
	}
}

// An instance has one contender per name, so with two names for one key it has two for that.
func TestWithKeyNamesThatShareAKeyExcludeEachOther(t *testing.T) { // rule R1
	t.Parallel()
	u := newUser(t, open(t, redistest.Start(t).Addr, WithKey(short)))
	first := u.lease("shop:a:7")
	require.ErrorIs(t, u.fails(t.Context(), "shop:b:7", noWait), distributed.ErrHeld)
	second := u.place("shop:b:7")
	third := u.other().place("shop:a:7")
	fourth := u.place("shop:c:7")
	last := fence(t, first)
	for _, next := range []distributed.Place{second, third, fourth} {
		time.Sleep(20 * time.Millisecond)
		require.Empty(t, next.Granted())
		release(t, first)
		first = ours(granted(t, next))
		now := fence(t, first)
		require.Greater(t, now, last)
		last = now
	}
	release(t, first)
}

// TestAKeyAmongTheHelperKeysIsRefused: of a client, by a function that puts its text first, or of a system that is called so. Its lock made the
// scripts of the lock fail whose queue it took the place of.
func TestAKeyAmongTheHelperKeysIsRefused(t *testing.T) { // rule R19
	t.Parallel()
	s, plain := openNew(t)
	for b, key := range map[*Backend]string{open(t, s.Addr, WithKey(short)): "shop:p:wllock:shop:{1}:q", plain: "wllock:ttl:shop"} {
		err := newUser(t, b).fails(t.Context(), key)
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		require.ErrorContains(t, err, `begins with "wllock:"`)
		require.ErrorIs(t, b.Probe(t.Context(), distributed.Probe{Key: key, TTL: testTTL}), distributed.ErrInvalidKey)
		_, err = b.Inspect(t.Context(), key)
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		_, err = b.Break(t.Context(), distributed.Inspection{Key: key, State: "x", Holders: []distributed.Holder{{Instance: "i"}}}, "me", "why")
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
	}
	_, _, err := plain.List(t.Context(), "wllock:", "", 10)
	require.ErrorIs(t, err, distributed.ErrInvalidKey)

	l, err := wllock.New("wllock", plain)
	require.NoError(t, err)
	defer l.Close(t.Context())
	require.ErrorIs(t, l.Ping(t.Context()), wllock.ErrInvalidKey)
	_, err = l.Acquire(t.Context(), "ttl", "shop")
	require.ErrorIs(t, err, wllock.ErrInvalidKey)
	require.NotErrorIs(t, err, wllock.ErrUnavailable)
	require.Empty(t, s.Do("KEYS", "wllock:ttl:*"))
}

func TestWithKeyRefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	u := newUser(t, open(t, redistest.Start(t).Addr, WithKey(func(string) string { return "" })))
	require.ErrorContains(t, u.fails(t.Context(), key(t)), "needs a key")
	u.name = ""
	require.ErrorContains(t, u.fails(t.Context(), key(t)), "an instance")
}
