package redisopts_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
)

var timeouts = redisopts.Timeouts{Dial: time.Second, IO: 2 * time.Second, Pool: 3 * time.Second}

// Each kind of options gets the same settings, in a copy: the caller's client is the caller's.
func TestPrivateOptions(t *testing.T) {
	single := &redis.Options{Addr: "a:1", MaxRetries: 3, AutoPipelineOptions: &redis.AutoPipelineOptions{}, MaxActiveConns: 5}
	cluster := &redis.ClusterOptions{Addrs: []string{"a:1"}, MaxRetries: 3, AutoPipelineOptions: &redis.AutoPipelineOptions{}}
	failover := &redis.FailoverOptions{MasterName: "main", MaxRetries: 3}
	ring := &redis.RingOptions{Addrs: map[string]string{"one": "a:1"}, MaxRetries: 3}
	before := *single
	o, c := redisopts.Single(single, timeouts), redisopts.Cluster(cluster, timeouts)
	f, r := redisopts.Failover(failover, timeouts), redisopts.Ring(ring, timeouts)
	require.Equal(t, before, *single)
	require.Equal(t, []int{3, 3, 3}, []int{cluster.MaxRetries, failover.MaxRetries, ring.MaxRetries})

	private := []any{-1, 1, true, time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second}
	for kind, got := range map[string][]any{
		"single":   {o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout},
		"cluster":  {c.MaxRetries, c.DialerRetries, c.ContextTimeoutEnabled, c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout},
		"failover": {f.MaxRetries, f.DialerRetries, f.ContextTimeoutEnabled, f.DialTimeout, f.ReadTimeout, f.WriteTimeout, f.PoolTimeout},
		"ring":     {r.MaxRetries, r.DialerRetries, r.ContextTimeoutEnabled, r.DialTimeout, r.ReadTimeout, r.WriteTimeout, r.PoolTimeout},
	} {
		require.Equal(t, private, got, kind)
	}
	require.Equal(t, []any{"a:1", 5, 0}, []any{o.Addr, o.PoolSize, o.MaxActiveConns})
	require.Equal(t, []any{cluster.Addrs, "main", ring.Addrs}, []any{c.Addrs, f.MasterName, r.Addrs})
	for _, m := range []*maintnotifications.Config{o.MaintNotificationsConfig, c.MaintNotificationsConfig} {
		require.Equal(t, maintnotifications.ModeDisabled, m.Mode)
	}
	require.Nil(t, o.AutoPipelineOptions)
	require.Nil(t, c.AutoPipelineOptions)
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

// parse returns what a URL of any kind says.
func parse(t *testing.T, text string) (any, error) {
	t.Helper()
	u, err := openurl.Parse(text)
	require.NoError(t, err)
	s, ok := redisopts.SchemeOf(u.Scheme)
	require.True(t, ok)
	switch s.Kind {
	case redisopts.KindSentinel:
		return redisopts.ParseSentinel(u, s.TLS)
	case redisopts.KindCluster:
		return redisopts.ParseCluster(u, s.TLS)
	default:
		return redisopts.ParseSingle(text, u)
	}
}

// parsed is parse for a URL that is right.
func parsed[O any](t *testing.T, text string) O {
	t.Helper()
	o, err := parse(t, text)
	require.NoError(t, err)
	return o.(O)
}

func TestURLsOfSentinels(t *testing.T) {
	o := parsed[*redis.FailoverOptions](t, "rediss+sentinel://u:p%2Fw@a:1,[::1],b/main/2"+
		"?sentinel_username=s&sentinel_password=q%2F&max_active_conns=5&skip_verify=true")
	require.Equal(t, []string{"a:1", "[::1]:26379", "b:26379"}, o.SentinelAddrs)
	require.Equal(t, []string{"main", "u", "p/w", "s", "q/"}, []string{o.MasterName, o.Username, o.Password, o.SentinelUsername, o.SentinelPassword})
	require.Equal(t, []int{2, 5}, []int{o.DB, o.MaxActiveConns})
	require.True(t, o.TLSConfig.InsecureSkipVerify)
	require.Empty(t, o.TLSConfig.ServerName, "each by its own name")
}

func TestURLsOfClusters(t *testing.T) {
	o := parsed[*redis.ClusterOptions](t, "redis+cluster://u:p@a:1,b?pool_size=30&conn_max_idle_time=1m")
	require.Equal(t, []string{"a:1", "b:6379"}, o.Addrs)
	require.Equal(t, []string{"u", "p"}, []string{o.Username, o.Password})
	require.Equal(t, 30, o.PoolSize)
	require.Equal(t, time.Minute, o.ConnMaxIdleTime)
	require.Nil(t, o.TLSConfig)
}

// What is wrong in a URL is named, and no password shown.
func TestWrongURLs(t *testing.T) {
	for text, want := range map[string]string{
		"redis+sentinel://u:s3cret@a/main?replica_only=true": "replica_only has no use here: locks need the primary",
		"redis+sentinel://u:s3cret@a/main?addr=b:1":          "addr has no use here: the hosts stand before the path",
		"redis+sentinel://u:s3cret@a/main?password=s3cret":   "password has no use here: user and password stand before the hosts",
		"redis+sentinel://u:s3cret@a/main?x=s3cret":          "unexpected option: x",
		"redis+sentinel://u:s3cret@a/main/x":                 `invalid database number "x"`,
		"redis+sentinel://u:s3cret@a/main/-1":                `invalid database number "-1"`,
		"redis+sentinel://u:s3cret@a":                        "must name the primary",
		"redis+cluster://u:s3cret@a/1":                       "a cluster has no databases",
		"redis+cluster://u:s3cret@a?read_only=true":          "read_only has no use here: locks need the primary",
		"redis+cluster://u:s3cret@a?skip_verify=true&x=1":    "unexpected option: x",
		"rediss+cluster://u:s3cret@a?skip_verify=maybe":      `skip_verify is "maybe": want true or false`,
		"redis://u:s3cret@a/1?db=2":                          "more than one database",
		"redis://u:s3cret@a/-1":                              `invalid database number "-1": want 0 or more`,
		"rediss://u:s3cret@a?db=-1":                          `invalid database number "-1": want 0 or more`,
		"unix://u:s3cret@host/run/redis.sock":                "a Unix socket has no host: want a path with three slashes",
		"redis+unix://run/redis.sock":                        "redis+unix:///run/redis.sock",
		"unix:///run/redis.sock?db=1&db=2":                   "more than one database",
	} {
		_, err := parse(t, text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestURLsOfOneServer(t *testing.T) {
	for text, want := range map[string][]any{
		"redis://a/1":                             {"a:6379", 1},
		"redis://a?db=2":                          {"a:6379", 2},
		"redis://[fe80::1%25eth0]/3":              {"[fe80::1%eth0]:6379", 3},
		"unix://u:p@/run/redis.sock?db=4":         {"/run/redis.sock", 4},
		"redis+unix:///run/redis.sock":            {"/run/redis.sock", 0},
		"redis://[fe80::1%25eth0]:1/3?protocol=3": {"[fe80::1%eth0]:1", 3},
	} {
		o := parsed[*redis.Options](t, text)
		require.Equal(t, want, []any{o.Addr, o.DB}, text)
	}
	o := parsed[*redis.FailoverOptions](t, "redis+sentinel://[fe80::1%25eth0],[fe80::2%25eth0]:1/main")
	require.Equal(t, []string{"[fe80::1%eth0]:26379", "[fe80::2%eth0]:1"}, o.SentinelAddrs)
}
