package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryLineIsThere finds out without running anything what has changed under the list.
func TestEveryLineIsThere(t *testing.T) {
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, m := range list {
		_, _, err := m.apply(top, t.TempDir())
		assert.NoError(t, err, m.what)
		for _, pkg := range m.packages() {
			assert.DirExists(t, filepath.Join(top, pkg))
		}
	}
}
