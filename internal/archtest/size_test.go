package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxFile is twice the largest table of results. A Go binary that was committed by mistake is some tens of MB, in every clone for good.
const maxFile = 1 << 20

// TestOnlySourceIsCommitted finds what `go build` left behind, before it is in the history.
func TestOnlySourceIsCommitted(t *testing.T) {
	top := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		return // a module from the proxy: nothing can be committed here, so nothing is skipped
	}
	_, _ = os.Stat(filepath.Join(top, ".git", "index")) // go test keeps a result as long as this file is the same
	files, err := exec.CommandContext(t.Context(), "git", "-C", top, "ls-files", "-z").Output()
	require.NoError(t, err)
	for _, name := range strings.FieldsFunc(string(files), func(r rune) bool { return r == 0 }) {
		info, err := os.Lstat(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // it is about to be removed
		}
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(maxFile), "%s is too large for a source", name)
	}
}
