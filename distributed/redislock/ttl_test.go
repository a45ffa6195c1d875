package redislock

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

var _ distributed.TTLRegistry = (*Backend)(nil)

// TestLongestTTL: each instance learns the longest of its system, before anybody has entered.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := asUser(t, s), asUser(t, s)
	longest := func(b *Backend, system string, own time.Duration) time.Duration {
		t.Helper()
		d, err := b.LongestTTL(t.Context(), system, own)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, time.Second, longest(one, "shop", time.Second))
	require.Equal(t, 10*time.Second, longest(other, "shop", 10*time.Second))
	for range 2 {
		require.Equal(t, 10*time.Second, longest(one, "shop", time.Second), "a repeat changes nothing")
	}
	require.Equal(t, time.Second, longest(open(t, s.Addr), "mail", time.Second), "another system")
	require.InDelta(t, ttlMemory.Milliseconds(), s.Do("PTTL", "wllock:shop:ttl"), 5000)
	require.Equal(t, int64(2), s.Do("ZCARD", "wllock:shop:ttl"))

	s.Do("ZADD", "wllock:shop:ttl", time.Now().UnixMilli()-1, "10000")
	require.Equal(t, time.Second, longest(one, "shop", 1500*time.Microsecond), "the longest was forgotten")
	require.Equal(t, time.Hour, longest(other, "shop", time.Hour))
	require.Equal(t, time.Hour, longest(one, "shop", time.Second))
	require.InDelta(t, (2 * time.Hour).Milliseconds(), s.Do("PTTL", "wllock:shop:ttl"), 5000, "as long as its leases can last")
	require.Equal(t, time.Duration(math.MaxInt64), longest(one, "shop", math.MaxInt64))
	require.Empty(t, s.Do("ACL", "LOG"))
}

func TestLongestTTLWithoutAServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.LongestTTL(ctx, "shop", time.Second)
	require.ErrorIs(t, err, distributed.ErrUnreached)
	require.NoError(t, b.Close())
	_, err = b.LongestTTL(t.Context(), "shop", time.Second)
	require.ErrorIs(t, err, distributed.ErrClosed)
	require.ErrorIs(t, b.Echo(t.Context()), distributed.ErrClosed)
}
