package config_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/tlstest"
)

// The settings of TLS are added to the URL, which wins.
func TestTLSOfTheEnvironment(t *testing.T) {
	a := tlstest.NewAuthority(t)
	p := a.Issue("x")
	for backend, want := range map[string]string{
		"zks://h/a":               "tls_ca=" + url.QueryEscape(a.File) + "&tls_cert=" + url.QueryEscape(p.Cert) + "&tls_key=" + url.QueryEscape(p.Key) + "&tls_server_name=x",
		"zks://h/a?tls_cert=y&b=": "tls_cert=y&b=&tls_ca=" + url.QueryEscape(a.File) + "&tls_key=" + url.QueryEscape(p.Key) + "&tls_server_name=x",
		"etcds://h?ca=y":          "tls_ca=y&tls_cert=" + url.QueryEscape(p.Cert) + "&tls_key=" + url.QueryEscape(p.Key) + "&tls_server_name=x",
	} {
		setenv(t, map[string]string{
			"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_BACKEND": backend,
			"WLLOCK_TLS_CA": a.File, "WLLOCK_TLS_CERT": p.Cert, "WLLOCK_TLS_KEY": p.Key, "WLLOCK_TLS_SERVER_NAME": "x",
		})
		c, err := config.FromEnv()
		require.NoError(t, err)
		var got string
		see := func(_ context.Context, u *url.URL) (distributed.Backend, error) {
			got = u.RawQuery
			return nil, errors.New("seen")
		}
		_, err = c.WithOpener("zks", see).WithOpener("etcds", see).OpenBackend(t.Context())
		require.ErrorContains(t, err, "seen")
		require.Equal(t, want, got)
	}
}

func TestWrongTLSOfTheEnvironment(t *testing.T) {
	a, other := tlstest.NewAuthority(t).Issue("x"), tlstest.NewAuthority(t).Issue("x")
	for _, test := range []struct {
		backend string
		vars    map[string]string
		says    string
	}{
		{"redis://h", map[string]string{"WLLOCK_TLS_CA": a.Cert}, "WLLOCK_TLS_CA is set, but WLLOCK_BACKEND is not over TLS"},
		{"unix:///s", map[string]string{"WLLOCK_TLS_SERVER_NAME": "x"}, "WLLOCK_TLS_SERVER_NAME is set, but WLLOCK_BACKEND is not over TLS"},
		{"memory://", map[string]string{"WLLOCK_TLS_KEY": a.Key}, "WLLOCK_TLS_KEY is set, but WLLOCK_BACKEND is not over TLS"},
		{"rediss://h", map[string]string{"WLLOCK_TLS_CA": "/none.pem"}, "WLLOCK_TLS_CA is refused: the parameter tls_ca: open /none.pem"},
		{"rediss://h", map[string]string{"WLLOCK_TLS_CERT": a.Cert, "WLLOCK_TLS_KEY": other.Key}, "private key does not match public key"},
	} {
		vars := map[string]string{"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_BACKEND": test.backend}
		maps.Copy(vars, test.vars)
		setenv(t, vars)
		_, err := config.FromEnv()
		require.ErrorContains(t, err, test.says)
	}
}

// Open says why a server is not trusted, and which file is wrong, though it hides what the URL says otherwise.
func TestOpenSaysWhatIsWrongWithTLS(t *testing.T) {
	t.Parallel()
	ours := tlstest.NewAuthority(t)
	p := tlstest.NewProxy(t, redistest.Start(t).Addr, ours.Issue("locks.test"), "")
	c := config.Default()
	c.SystemName, c.TLSCa = "order", ours.File
	for query, says := range map[string]string{
		"?tls_server_name=other.test": "certificate is valid for locks.test, not other.test",
		"?tls_ca=/run/none.pem":       "the parameter tls_ca: open /run/none.pem",
	} {
		c.Backend = config.NewURL("rediss://" + p.Addr + query)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := c.Open(ctx)
		cancel()
		require.ErrorContains(t, err, says)
	}
	c.TLSServerName, c.Backend = "locks.test", config.NewURL("rediss://"+p.Addr)
	locker, err := c.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), "n", "k", func(context.Context) error { return nil }, wllock.SyncRelease()))
	require.NoError(t, locker.Close(t.Context()))
}
