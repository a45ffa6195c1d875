package testproc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFoldersOfProcessesThatHaveGone are removed, and those of others stay.
func TestFoldersOfProcessesThatHaveGone(t *testing.T) {
	mine := owned
	defer func() { owned = mine }()
	top := filepath.Join(t.TempDir(), "top")
	gone, err := ownFolder(top)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(gone, "data"), nil, 0o600))
	require.NoError(t, owned.Close()) // as the process's end does
	alive, err := ownFolder(top)
	require.NoError(t, err)
	of := owned
	defer func() { require.NoError(t, of.Close()) }()
	next, err := ownFolder(top)
	require.NoError(t, err)
	require.NoError(t, owned.Close())
	require.NoDirExists(t, gone)
	require.DirExists(t, alive)
	require.DirExists(t, next)
}
