package redisopts_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redisopts"
)

var timeouts = redisopts.Timeouts{Dial: time.Second, IO: 2 * time.Second, Pool: 3 * time.Second}

// Each kind of options gets the same settings, in a copy: the caller's client is the caller's.
func TestPrivateOptions(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		given := &redis.Options{Addr: "a:1", MaxRetries: 3, AutoPipelineOptions: &redis.AutoPipelineOptions{}, MaxActiveConns: 5}
		before := *given
		o := redisopts.Single(given, timeouts)
		require.Equal(t, before, *given)
		require.Equal(t, "a:1", o.Addr)
		require.Equal(t, []int{5, 0}, []int{o.PoolSize, o.MaxActiveConns})
		requirePrivate(t, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
		require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
		require.Nil(t, o.AutoPipelineOptions)
	})
	t.Run("cluster", func(t *testing.T) {
		given := &redis.ClusterOptions{Addrs: []string{"a:1"}, MaxRetries: 3, AutoPipelineOptions: &redis.AutoPipelineOptions{}}
		o := redisopts.Cluster(given, timeouts)
		require.Equal(t, 3, given.MaxRetries)
		require.Equal(t, given.Addrs, o.Addrs)
		requirePrivate(t, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
		require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
		require.Nil(t, o.AutoPipelineOptions)
	})
	t.Run("failover", func(t *testing.T) {
		given := &redis.FailoverOptions{MasterName: "main", MaxRetries: 3}
		o := redisopts.Failover(given, timeouts)
		require.Equal(t, 3, given.MaxRetries)
		require.Equal(t, "main", o.MasterName)
		requirePrivate(t, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
	})
	t.Run("ring", func(t *testing.T) {
		given := &redis.RingOptions{Addrs: map[string]string{"one": "a:1"}, MaxRetries: 3}
		o := redisopts.Ring(given, timeouts)
		require.Equal(t, 3, given.MaxRetries)
		require.Equal(t, given.Addrs, o.Addrs)
		requirePrivate(t, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
	})
}

func requirePrivate(t *testing.T, retries, dialerRetries int, deadlines bool, dial, read, write, pool time.Duration) {
	t.Helper()
	require.Equal(t, []int{-1, 1}, []int{retries, dialerRetries})
	require.True(t, deadlines)
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second}, []time.Duration{dial, read, write, pool})
}

func TestSchemes(t *testing.T) {
	require.Equal(t, []string{"redis", "redis+cluster", "redis+sentinel", "redis+unix", "rediss", "rediss+cluster",
		"rediss+sentinel", "redlock", "redlocks", "unix"}, redisopts.Schemes())
	s, ok := redisopts.SchemeOf("rediss+sentinel")
	require.True(t, ok)
	require.Equal(t, redisopts.Scheme{Kind: redisopts.KindSentinel, TLS: true}, s)
	_, ok = redisopts.SchemeOf("memory")
	require.False(t, ok)
}
