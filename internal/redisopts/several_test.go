package redisopts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
)

func TestURLsOfSentinels(t *testing.T) {
	u, err := openurl.Parse("rediss+sentinel://u:p%2Fw@a:1,[::1],b/main/2?sentinel_username=s&sentinel_password=q%2F&max_active_conns=5&skip_verify=true")
	require.NoError(t, err)
	o, err := redisopts.ParseSentinel(u, true)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "[::1]:26379", "b:26379"}, o.SentinelAddrs)
	require.Equal(t, []string{"main", "u", "p/w", "s", "q/"}, []string{o.MasterName, o.Username, o.Password, o.SentinelUsername, o.SentinelPassword})
	require.Equal(t, []int{2, 5}, []int{o.DB, o.MaxActiveConns})
	require.True(t, o.TLSConfig.InsecureSkipVerify)
	require.Empty(t, o.TLSConfig.ServerName, "each by its own name")
}

func TestURLsOfClusters(t *testing.T) {
	u, err := openurl.Parse("redis+cluster://u:p@a:1,b?pool_size=30&conn_max_idle_time=1m")
	require.NoError(t, err)
	o, err := redisopts.ParseCluster(u, false)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:6379"}, o.Addrs)
	require.Equal(t, []string{"u", "p"}, []string{o.Username, o.Password})
	require.Equal(t, 30, o.PoolSize)
	require.Equal(t, time.Minute, o.ConnMaxIdleTime)
	require.Nil(t, o.TLSConfig)
}

// What is wrong in a URL with several hosts is named, and no password shown.
func TestWrongURLsOfSeveralHosts(t *testing.T) {
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
	} {
		u, err := openurl.Parse(text)
		require.NoError(t, err)
		s, ok := redisopts.SchemeOf(u.Scheme)
		require.True(t, ok)
		if s.Kind == redisopts.KindSentinel {
			_, err = redisopts.ParseSentinel(u, s.TLS)
		} else {
			_, err = redisopts.ParseCluster(u, s.TLS)
		}
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// What a URL of one server says is used, or refused by name.
func TestURLsOfOneServer(t *testing.T) {
	for text, want := range map[string]string{
		"redis://u:s3cret@a/1?db=2":           "more than one database",
		"redis://u:s3cret@a/-1":               `invalid database number "-1": want 0 or more`,
		"rediss://u:s3cret@a?db=-1":           `invalid database number "-1": want 0 or more`,
		"unix://u:s3cret@host/run/redis.sock": "a Unix socket has no host: want a path with three slashes",
		"redis+unix://run/redis.sock":         "redis+unix:///run/redis.sock",
		"unix:///run/redis.sock?db=1&db=2":    "more than one database",
	} {
		u, err := openurl.Parse(text)
		require.NoError(t, err)
		_, err = redisopts.ParseSingle(text, u)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
	for text, want := range map[string][]any{
		"redis://a/1":                             {"a:6379", 1},
		"redis://a?db=2":                          {"a:6379", 2},
		"redis://[fe80::1%25eth0]/3":              {"[fe80::1%eth0]:6379", 3},
		"unix://u:p@/run/redis.sock?db=4":         {"/run/redis.sock", 4},
		"redis+unix:///run/redis.sock":            {"/run/redis.sock", 0},
		"redis://[fe80::1%25eth0]:1/3?protocol=3": {"[fe80::1%eth0]:1", 3},
	} {
		u, err := openurl.Parse(text)
		require.NoError(t, err)
		o, err := redisopts.ParseSingle(text, u)
		require.NoError(t, err)
		require.Equal(t, want, []any{o.Addr, o.DB}, text)
	}
	u, err := openurl.Parse("redis+sentinel://[fe80::1%25eth0],[fe80::2%25eth0]:1/main")
	require.NoError(t, err)
	o, err := redisopts.ParseSentinel(u, false)
	require.NoError(t, err)
	require.Equal(t, []string{"[fe80::1%eth0]:26379", "[fe80::2%eth0]:1"}, o.SentinelAddrs)
}
