package conn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A URL with one host and one with several agree about what a password may contain.
func TestUnescapedPasswordIsRefusedByEveryScheme(t *testing.T) {
	for _, scheme := range []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"} {
		for _, password := range []string{"12/secret", "12?secret", "12#secret"} {
			_, _, err := Open(scheme+"://u:"+password+"@h1/main", Config{})
			require.ErrorContains(t, err, "percent-encode it", scheme)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	for _, url := range []string{"redis+cluster://", "redis+sentinel:///main"} {
		_, _, err := Open(url, Config{})
		require.ErrorContains(t, err, "no host", url)
	}
}

func TestHelloGetsAName(t *testing.T) {
	for given, want := range map[string]string{
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n": "*4\r\n$5\r\nhello\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$5\r\nweb-1\r\n",
		"*5\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$1\r\np\r\n": "*7\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$1\r\np\r\n" +
			"$7\r\nSETNAME\r\n$5\r\nweb-1\r\n",
		"*4\r\n$5\r\nhello\r\n$1\r\n3\r\n$7\r\nsetname\r\n$1\r\nx\r\n": "", // has one
		"*1\r\n$4\r\nping\r\n":                                                      "", // another command
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n*1\r\n$4\r\nping\r\n":                      "", // more than one
		"*5\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$4\r\np\r\nq\r\n": "", // a line break in a password
		"hello": "",
	} {
		assert.Equal(t, want, string(withName([]byte(given), "web-1")), given)
	}
}

func TestSystemOf(t *testing.T) {
	for key, want := range map[string]string{
		"shop:p:1": "shop", "orders:42": "orders", "my-lock": "", "": "", ":a": "", "{a}:b": "", "a{:b": "", "a:{b}": "a", "wllock:shop:ttl": "wllock",
	} {
		require.Equal(t, want, SystemOf(key), key)
		require.Equal(t, want, SystemIn(SpaceOf(want)+"{"+key+"}:s"), key)
		require.Equal(t, want, SystemIn(SpaceOf(want)+"PROCESS"), key)
	}
	require.True(t, IsHelper("wllock:"))
	require.False(t, IsHelper("wllock"))
}
