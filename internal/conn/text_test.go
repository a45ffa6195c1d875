package conn

import (
	"testing"

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
