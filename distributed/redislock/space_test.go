package redislock

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

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
	s := redistest.Start(t)
	b := open(t, s.Addr, WithSystem("shop"))
	require.NoError(t, b.Ping(t.Context()))
	require.Equal(t, []string{"1"}, subscribers(s))
	a, w := newUser(t, b).lasting(time.Minute), newUser(t, b).lasting(time.Minute)
	for _, key := range []string{"shop:p:1", "bank:p:1", "my-lock", "{a}:b"} {
		l := a.lease(key)
		p := w.place(key)
		release(t, l)
		start := time.Now()
		release(t, granted(t, p))
		inTime(t, "told by a message", time.Since(start), 0)
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
		_, _, err := u.enter(t.Context(), "bank:p:1")
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the user lacks the ACL rules &wllock:bank:*")
	}
	release(t, l)
	release(t, granted(t, p))
	require.Equal(t, []string{"1"}, subscribers(s), "one channel, over the connection that there was")

	s.Do("ACL", "SETUSER", "u", "&wllock:bank:*")
	require.Eventually(t, func() bool { return len(subscribers(s)) == 1 && subscribers(s)[0] == "2" }, patience, 10*time.Millisecond)
	release(t, u.lease("bank:p:1"))
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
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	s.Do("SET", keysOf("shop:p:1", "")[1], "9000000000000000999", "PX", 60000)
	l := u.lease("shop:p:1")
	require.Greater(t, fence(t, l), uint64(9e18))
	other := u.lease("bank:p:1")
	require.Less(t, fence(t, other), uint64(time.Now().Add(time.Hour).UnixNano()))
	release(t, l)
	release(t, other)
}
