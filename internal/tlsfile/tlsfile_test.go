package tlsfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/tlsfile"
	"github.com/wllock/wllock/internal/tlstest"
)

func TestTakeLeavesTheRestAsItIs(t *testing.T) {
	ca := tlstest.NewAuthority(t).File
	f, rest, err := tlsfile.Take("a=%2F&tls_ca="+ca+"&b=x,y&tls_server_name=h%2Ei", "rediss", true)
	require.NoError(t, err)
	require.Equal(t, "a=%2F&b=x,y", rest)
	require.Equal(t, tlsfile.Files{CA: ca, ServerName: "h.i"}, f)
	c, err := f.Config("j")
	require.NoError(t, err)
	require.Equal(t, "h.i", c.ServerName)
}

func TestRenamed(t *testing.T) {
	require.Equal(t, "tls_ca=/my-ca&tls_cert=b&tls_key=c&tls_server_name=d-e&password-file=x",
		tlsfile.Renamed("ca=/my-ca&cert=b&key=c&server-name=d-e&password-file=x"))
}

// What is wrong is named, with the file.
func TestWhatIsWrongIsNamed(t *testing.T) {
	a, b := tlstest.NewAuthority(t).Issue("x"), tlstest.NewAuthority(t).Issue("x")
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("s3cret"), 0o600))
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for query, says := range map[string]string{
		"tls_ca=" + pipe:                            "tls_ca: " + pipe + " is a pipe or a device",
		"tls_cert=" + pipe + "&tls_key=" + a.Key:    pipe + " is a pipe or a device",
		"tls_cert=" + a.Cert + "&tls_key=" + pipe:   pipe + " is a pipe or a device",
		"tls_ca=/none.pem":                          "the parameter tls_ca: open /none.pem: no such file",
		"tls_ca=" + text:                            `tls_ca: no certificate in PEM form in "` + text,
		"tls_ca=":                                   "tls_ca has no value",
		"tls_ca=%zz":                                "tls_ca has no value",
		"tls_server_name=a&tls_server_name=a":       "tls_server_name is given twice",
		"tls_cert=" + a.Cert:                        "tls_cert and tls_key need each other",
		"tls_key=" + a.Key:                          "tls_cert and tls_key need each other",
		"tls_cert=/none.pem&tls_key=" + a.Key:       "tls_cert \"/none.pem\" and tls_key",
		"tls_cert=" + a.Cert + "&tls_key=" + text:   "failed to find any PEM data in key input",
		"tls_cert=" + a.Cert + "&tls_key=" + b.Key:  "private key does not match public key",
		"tls_cert=" + a.Cert + "&tls_key=" + a.Cert: "tls_key",
	} {
		_, _, err := tlsfile.Take(query, "rediss", true)
		require.ErrorContains(t, err, says, query)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, _, err := tlsfile.Take("x=1&tls_key=/none.pem", "redis", false)
	require.ErrorContains(t, err, "the parameter tls_key is for TLS, which redis:// is without")
}
