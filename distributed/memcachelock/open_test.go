package memcachelock

import (
	"fmt"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/tlstest"
)

// Servers are trusted, and trust us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	tlstest.Run(t, tlstest.Before(dbtest.Memcached(t).Addr, func(addr string) string { return "memcacheds://" + addr + "?unfenced=true" }),
		func(url string) (*Backend, error) { return Open(url) })
}

func TestOpenTakesAServer(t *testing.T) {
	t.Parallel()
	b, err := Open("memcached://" + dbtest.Memcached(t).Addr + "/?unfenced=true")
	require.NoError(t, err)
	require.NoError(t, b.Ping(t.Context()))
	require.NoError(t, b.Close())
}

// Processes that use a client of the library agree with those that use a URL about where a lock lies.
func TestKeysLieWhereTheLibraryPutsThem(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][]string{{"127.0.0.1:1"}, {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}} {
		var theirs memcache.ServerList
		require.NoError(t, theirs.SetServers(hosts...))
		var ours servers
		for _, host := range hosts {
			ours = append(ours, server(host))
		}
		for i := range 100 {
			key := itemKey(fmt.Sprint("shop:product:", i))
			want, err := theirs.PickServer(key)
			require.NoError(t, err)
			got, err := ours.PickServer(key)
			require.NoError(t, err)
			require.Equal(t, want.String(), got.String())
		}
	}
}

func TestWrongURLsAreRefused(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"memcached://h":                                 "WithUnfenced",
		"memcached://h?unfenced=maybe":                  "unfenced=true",
		"memcached://":                                  "not the URL of servers",
		"memcached://h1,,h2?unfenced=true":              "not the URL of servers",
		"memcached://u:s3cret@h?unfenced=true":          "without a user",
		"memcached://h/x?unfenced=true":                 "not the URL of servers",
		"redis://h":                                     "not the URL of servers",
		"memcached://h?unfenced=true&tls_ca=/none":      "is for TLS, which memcached:// is without",
		"memcacheds://h?unfenced=true&tls_ca=/none":     "the parameter tls_ca: open /none",
		"memcacheds://[::1]?unfenced=true&server=x":     "unknown parameter",
		"memcacheds://h?unfenced=true&tls_key=/none":    "need each other",
		"memcached://h?unfenced=true&password-file=/pw": "unknown parameter",
	} {
		_, err := Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
