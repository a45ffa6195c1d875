package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

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
			p := u.other().place("shop:name:" + name)
			release(t, l)
			release(t, granted(t, p))

			require.True(t, other.lock(t.Context()), "our release must free the key")
			_, _, err := u.enter(t.Context(), "shop:name:"+name, noWait)
			require.ErrorIs(t, err, distributed.ErrHeld)
			p = u.place("shop:name:" + name)
			time.Sleep(20 * time.Millisecond)
			require.Empty(t, p.Granted())
			start := time.Now()
			require.True(t, other.unlock(t.Context()), "we must not touch its lock")
			l2 := granted(t, p)
			inTime(t, "after a foreigner's unlock", time.Since(start), 75*time.Millisecond)
			release(t, l2)
		})
	}
}

func (u user) other() user { return newUser(u.t, u.b).lasting(u.ttl) }

// An instance has one contender per name, so with two names for one key it has two for that.
func TestWithKeyNamesThatShareAKeyExcludeEachOther(t *testing.T) { // rule R1
	t.Parallel()
	u := newUser(t, open(t, redistest.Start(t).Addr, WithKey(short)))
	first := u.lease("shop:a:7")
	_, _, err := u.enter(t.Context(), "shop:b:7", noWait)
	require.ErrorIs(t, err, distributed.ErrHeld)
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
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr, WithKey(short)))
	p := newUser(t, open(t, s.Addr))
	for b, key := range map[*Backend]string{u.b: "shop:p:wllock:shop:{1}:q", p.b: "wllock:ttl:shop"} {
		_, _, err := newUser(t, b).enter(t.Context(), key)
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		require.ErrorContains(t, err, `begins with "wllock:"`)
		require.ErrorIs(t, b.Probe(t.Context(), distributed.Probe{Key: key, TTL: testTTL}), distributed.ErrInvalidKey)
		_, err = b.Inspect(t.Context(), key)
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
		_, err = b.Break(t.Context(), distributed.Inspection{Key: key, State: "x", Holders: []distributed.Holder{{Instance: "i"}}}, "me", "why")
		require.ErrorIs(t, err, distributed.ErrInvalidKey)
	}
	_, _, err := p.b.List(t.Context(), "wllock:", "", 10)
	require.ErrorIs(t, err, distributed.ErrInvalidKey)

	l, err := wllock.New("wllock", p.b)
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
	_, _, err := u.enter(t.Context(), key(t))
	require.ErrorContains(t, err, "needs a key")
	u.name = ""
	_, _, err = u.enter(t.Context(), key(t))
	require.ErrorContains(t, err, "an instance")
}
