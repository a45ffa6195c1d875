package zklock

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/tlstest"
	"github.com/wllock/wllock/internal/zktest"
)

// Servers are trusted, and trust us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	tlstest.Run(t, tlstest.Before(zktest.Shared(t).Addr, func(addr string) string { return "zks://" + addr + newRoot() }),
		func(url string) (*Backend, error) { return Open(url) })
}

// The password is in a file that the URL names, and read for each session.
func TestPasswordFileByURL(t *testing.T) {
	t.Parallel()
	file, root := filepath.Join(t.TempDir(), "password"), newRoot()
	for _, password := range []string{"first\n", "second\n"} {
		require.NoError(t, os.WriteFile(file, []byte(password), 0o600))
		b, err := Open("zk://shop@" + zktest.Shared(t).Addr + root + password[:5] + "?password-file=" + file)
		require.NoError(t, err)
		credentials, err := b.set.credentials()
		require.NoError(t, err)
		require.Equal(t, "shop:"+password[:len(password)-1], string(credentials))
		require.NoError(t, b.Ping(t.Context()))
		require.NoError(t, b.Close())
	}
}
