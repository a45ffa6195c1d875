package openurl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/openurl"
)

// One grammar for all schemes: a password with a reserved character is refused, not taken for a path.
func TestParse(t *testing.T) {
	for _, test := range []struct{ url, user, password, host, path, err string }{
		{url: "redis://h:6379/1", host: "h:6379", path: "/1"},
		{url: "redis+sentinel://u:p%2Fw@a:1,b:2/main", user: "u", password: "p/w", host: "a:1,b:2", path: "/main"},
		{url: "redis+cluster://u:p@w@[::1]:1,b", user: "u", password: "p@w", host: "[::1]:1,b"},
		{url: "unix://u:p@/run/redis.sock", user: "u", password: "p", path: "/run/redis.sock"},
		{url: "memory://"},
		{url: "redis://[fe80::1%25eth0]:1,b", host: "[fe80::1%eth0]:1,b"},
		{url: "redis://[fe80::1%eth0]:1", err: "[fe80::1%25eth0]"},
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
		u, err := openurl.Parse(test.url)
		if test.err != "" {
			require.ErrorContains(t, err, test.err, test.url)
			continue
		}
		require.NoError(t, err, test.url)
		password, _ := u.User.Password()
		require.Equal(t, []string{test.user, test.password, test.host, test.path}, []string{u.User.Username(), password, u.Host, u.Path})
	}
}
