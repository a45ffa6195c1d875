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

// One grammar for all schemes: a password with a reserved character is refused, not taken for a path.
func TestParseURL(t *testing.T) {
	for _, test := range []struct{ url, user, password, host, path, err string }{
		{url: "redis://h:6379/1", host: "h:6379", path: "/1"},
		{url: "redis+sentinel://u:p%2Fw@a:1,b:2/main", user: "u", password: "p/w", host: "a:1,b:2", path: "/main"},
		{url: "redis+cluster://u:p@w@[::1]:1,b", user: "u", password: "p@w", host: "[::1]:1,b"},
		{url: "unix://u:p@/run/redis.sock", user: "u", password: "p", path: "/run/redis.sock"},
		{url: "memory://"},
		{url: "redis+sentinel://u:p/w@a:1/main", err: "percent-encode it"},
		{url: "redis+cluster://u:p?w@a:1", err: "percent-encode it"},
		{url: "redis://u:p#w@a:1", err: "percent-encode it"},
		{url: "redis+cluster://u:%zz@a:1", err: "is not a URL"},
		{url: "h:6379", err: "is not a URL"},
		{url: "redis://u:p@a:1\r\n", err: "has a line end"},
		{url: "redis://u:p\n@a:1", err: "has a line end"},
		{url: "\ufeffredis://a:1", err: "a byte order mark"},
		{url: "redis+cluster://a,,b", err: "has no host"},
		{url: "redis://h:99999", err: "has a port above 65535"},
		{url: "redis://u:p@", err: "has no host"},
	} {
		u, err := redisopts.ParseURL(test.url)
		if test.err != "" {
			require.ErrorContains(t, err, test.err, test.url)
			continue
		}
		require.NoError(t, err, test.url)
		password, _ := u.User.Password()
		require.Equal(t, []string{test.user, test.password, test.host, test.path}, []string{u.User.Username(), password, u.Host, u.Path})
	}
}
