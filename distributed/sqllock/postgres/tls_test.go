package postgres_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/tlstest"
)

// A server is trusted, and trusts us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	s := dbtest.SharedPostgres(t)
	require.NoError(t, postgres.Migrate(t.Context(), s.URL()))
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	u.RawQuery = ""
	tlstest.Run(t, tlstest.Before(s.Addr, func(addr string) string {
		there := *u
		there.Host = addr
		return there.String()
	}), func(url string) (*sqllock.Backend, error) { return postgres.Open(url) })
}

func TestWrongTLSIsNamed(t *testing.T) {
	t.Parallel()
	ca := tlstest.NewAuthority(t).File
	for url, says := range map[string]string{
		"postgres://u:s3cret@h/db?tls_ca=/none.pem":                        "the parameter tls_ca: open /none.pem",
		"postgres://u:s3cret@h/db?sslrootcert=/none.pem&sslmode=verify-ca": "a file that the URL names: open /none.pem",
		"postgres://u:s3cret@h/db?sslmode=require&tls_ca=" + ca:            "want sslmode=verify-full",
		"postgres://u:s3cret@h/db?sslrootcert=x&tls_ca=" + ca:              "sslrootcert and the tls_ parameter",
		"postgresql://u:s3cret@h/db?tls_cert=" + ca:                        "need each other",
		"postgres://u:s3cret@/db?host=/run/postgresql&tls_server_name=h":   "no use with a unix socket",
	} {
		_, err := postgres.Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
