package archtest

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tools is the module of the linters. It is not in go.work, where it would choose versions for the others.
const tools = "tools"

// modFile is what go.mod and go.work say.
type modFile struct {
	Go      string
	Require []struct{ Path, Version string }
	Use     []struct{ DiskPath string }
}

func readMod(t *testing.T, dir, tool string) (m modFile) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(goIn(t, dir, tool, "edit", "-json", "go."+tool)), &m))
	return m
}

// workspace returns the directories of the modules that go.work ties together.
func workspace(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, use := range readMod(t, ".", "work").Use {
		dirs = append(dirs, filepath.Clean(use.DiskPath))
	}
	return dirs
}

func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	noteFiles(t)
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "go.mod" {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			found = append(found, dir)
			return err
		}
		return err
	}))
	assert.ElementsMatch(t, found, append(workspace(t), tools))
}

// TestModulesAgree: each builds with the same Go and the same dependencies, alone and in the workspace.
func TestModulesAgree(t *testing.T) {
	noteFiles(t)
	release := readMod(t, ".", "work").Go
	versions := map[string]string{}
	for _, dir := range append(workspace(t), tools) {
		m := readMod(t, dir, "mod")
		assert.Equal(t, release, m.Go, "the go directive of %s", dir)
		for _, r := range m.Require {
			if other, known := versions[r.Path]; known {
				assert.Equal(t, other, r.Version, "%s, which %s requires", r.Path, dir)
			}
			versions[r.Path] = r.Version
		}
	}
}
