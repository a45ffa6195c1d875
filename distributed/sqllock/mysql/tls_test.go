package mysql

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/tlstest"
)

// A server is trusted, and trusts us, by the files that the URL names. TLS begins within its protocol, so it is the server's own.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	dir := testproc.TempDir(t, "mysqltls")
	require.NoError(t, os.Chmod(dir, 0o755))
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	first := tlstest.NewAuthority(t)
	show := func(t *testing.T, p tlstest.Pair, clients string) {
		tlstest.Copy(t, clients, ca)
		tlstest.Copy(t, p.Cert, cert)
		tlstest.Copy(t, p.Key, key)
	}
	show(t, first.Issue("first"), first.File)
	s := dbtest.MariaDB(t, dbtest.NoSync(), dbtest.Set("ssl_ca", ca), dbtest.Set("ssl_cert", cert), dbtest.Set("ssl_key", key))
	require.NoError(t, Migrate(t.Context(), s.URL()))
	tlstest.Run(t, tlstest.Alone(func(t *testing.T, p tlstest.Pair, clients string) (string, func(tlstest.Pair, string)) {
		change := func(p tlstest.Pair, clients string) {
			demand := map[bool]string{true: "NONE", false: "X509"}[clients == ""]
			if clients == "" {
				clients = first.File
			}
			show(t, p, clients)
			s.Exec("FLUSH SSL; CREATE OR REPLACE USER shop@'%' IDENTIFIED BY 's3cret' REQUIRE " + demand + "; GRANT ALL ON *.* TO shop@'%'")
		}
		change(p, clients)
		return s.URLFor(s.Addr, "shop", "s3cret"), change
	}), func(url string) (*sqllock.Backend, error) { return Open(url) })
}

func TestWrongTLSIsNamed(t *testing.T) {
	t.Parallel()
	ca := tlstest.NewAuthority(t).File
	for url, says := range map[string]string{
		"mysql://u:s3cret@h/db?tls_ca=/none.pem":                 "the parameter tls_ca: open /none.pem",
		"mysql://u:s3cret@h/db?tls=skip-verify&tls_ca=" + ca:     "want tls=true",
		"mysql://u:s3cret@h/db?charset=utf8mb4&tls_cert=" + ca:   "need each other",
		"mysql://u:s3cret@h/db?tls_server_name=&charset=utf8mb4": "tls_server_name has no value",
	} {
		_, err := Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
