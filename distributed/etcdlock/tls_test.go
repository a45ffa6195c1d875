package etcdlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/tlstest"
)

// Servers are trusted, and trust us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	tlstest.Run(t, tlstest.Before(etcdtest.Shared(t).Addr, func(addr string) string { return "etcds://" + addr + newPrefix() }),
		func(url string) (*Backend, error) { return Open(url) })
}

// Names that parameters had before, and what they cannot be.
func TestParametersOfTLS(t *testing.T) {
	t.Parallel()
	d, _, err := parseURL("etcds://h?ca=" + tlstest.NewAuthority(t).File + "&server-name=x")
	require.NoError(t, err)
	require.Equal(t, "x", d.files.ServerName)
	for url, says := range map[string]string{
		"etcds://u:s3cret@h?tls_ca=/none":       "the parameter tls_ca: open /none",
		"etcds://u:s3cret@h?ca=/none":           "the parameter tls_ca: open /none",
		"etcds://u:s3cret@h?ca=/none&tls_ca=/x": "tls_ca is given twice",
		"etcd://u:s3cret@h?tls_ca=/none":        "is for TLS, which etcd:// is without",
	} {
		_, err := Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// A log-in, which makes a client of its own, says as much.
func TestLogInOverTLSSaysWhy(t *testing.T) {
	t.Parallel()
	p := tlstest.NewProxy(t, etcdtest.Shared(t).Addr, tlstest.NewAuthority(t).Issue("127.0.0.1"), "")
	b, err := Open("etcds://u:s3cret@" + p.Addr + "?tls_ca=" + tlstest.NewAuthority(t).File)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	err = b.Ping(t.Context())
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	require.ErrorIs(t, err, distributed.ErrUnreached)
	require.NotContains(t, err.Error(), "s3cret")
}
