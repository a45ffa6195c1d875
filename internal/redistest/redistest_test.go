package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testscope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerRestartsOnItsPort(t *testing.T) {
	t.Parallel()
	s := Start(t, "--requirepass", "secret")
	c := s.Client(func(o *redis.Options) { o.Password = "secret" })
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart()
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestServerPauses(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client()
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, c.Ping(ctx).Err())
	s.Resume()
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestCluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := StartCluster(t)
	require.NoError(t, c.Client().Set(t.Context(), "a", "b", 0).Err())
	owner, _ := c.Owner("a")
	require.Equal(t, "b", owner.Do("GET", "a"))
}

func TestSentinelFailover(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	s := StartSentinel(t)
	require.Equal(t, s.Primary.Addr, s.PrimaryAddr())
	require.NoError(t, s.Client().Ping(t.Context()).Err())
}

func TestProxyLosesReplies(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr)
	c := s.Client(func(o *redis.Options) { o.Addr = p.Addr })
	p.SwallowReply("incr")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a busy machine sends later
	defer cancel()
	require.Error(t, c.Incr(ctx, "n").Err())
	require.Equal(t, 1, p.Swallowed())
	require.Equal(t, "1", s.Do("GET", "n"))
	require.NoError(t, c.Incr(t.Context(), "n").Err())
	p.SetHalfOpen(true)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, c.Incr(ctx, "n").Err())
}

func TestClockStandsStillUntilSet(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_800_000_000_123_456)
	s, clock := StartWithClock(t, now)
	c := s.Client()
	require.NoError(t, c.Set(t.Context(), "k", "v", time.Second).Err())
	for _, step := range []time.Duration{0, time.Second, time.Millisecond, -time.Minute} {
		now = now.Add(step)
		clock.Set(now)
		at, err := c.Time(t.Context()).Result()
		require.NoError(t, err)
		require.Equal(t, now.UnixMicro(), at.UnixMicro())
		n, err := c.Exists(t.Context(), "k").Result()
		require.NoError(t, err)
		require.Equal(t, step == 0 || step == time.Second, n == 1, "after another %v", step)
	}
}
