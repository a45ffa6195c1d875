package archtest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tools is the module of the linters. It is not in go.work, where it would choose versions for the others.
const tools = "tools"

// required is what the root module may require, and so brings into the module graph of every importer.
var required = []string{
	redisClient, "github.com/go-redis/redis_rate/v10", "github.com/go-zookeeper/zk", "github.com/bradfitz/gomemcache", "github.com/kelseyhightower/envconfig", "golang.org/x/time",
	otel, otel + "/metric", otel + "/trace",
	"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/sync", // for tests
}

// modFile is what go.mod and go.work say.
type modFile struct {
	Go      string
	Require []requirement
	Use     []struct{ DiskPath string }
}

type requirement struct {
	Path, Version string
	Indirect      bool
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
	mods := map[string]modFile{}
	for _, dir := range append(workspace(t), tools) {
		mods[dir] = readMod(t, dir, "mod")
	}
	for _, wrong := range disagreements(readMod(t, ".", "work").Go, mods) {
		t.Error(wrong)
	}
}

// disagreements returns what in go.mod files is not alike, and what the root's should not have, a line each, in order.
func disagreements(release string, mods map[string]modFile) []string {
	var found []string
	versions := map[string]string{}
	for _, dir := range slices.Sorted(maps.Keys(mods)) {
		if m := mods[dir]; m.Go != release {
			found = append(found, fmt.Sprintf("%s has go %s, go.work has %s", dir, m.Go, release))
		}
		for _, r := range mods[dir].Require {
			if first, known := versions[r.Path]; !known {
				versions[r.Path] = r.Version
			} else if r.Version != first {
				found = append(found, fmt.Sprintf("%s requires %s %s, others %s", dir, r.Path, r.Version, first))
			}
			if dir == "." && !r.Indirect && !slices.Contains(required, r.Path) {
				found = append(found, fmt.Sprintf("the root requires %s of its importers", r.Path))
			}
		}
	}
	return found
}

func TestDisagreementsAreFound(t *testing.T) {
	requires := func(path, version string) modFile {
		return modFile{Go: "1.2", Require: []requirement{{Path: path, Version: version}}}
	}
	require.Empty(t, disagreements("1.2", map[string]modFile{
		".": requires(otel, "v1"), "example": requires(otel, "v1"), "test": requires("example.com/sdk", "v1"),
	}))
	require.Equal(t, []string{"example requires " + otel + " v2, others v1", "test has go 1.1, go.work has 1.2"},
		disagreements("1.2", map[string]modFile{".": requires(otel, "v1"), "example": requires(otel, "v2"), "test": {Go: "1.1"}}))
	require.Equal(t, []string{"the root requires example.com/sdk of its importers"},
		disagreements("1.2", map[string]modFile{".": requires("example.com/sdk", "v1")}))
}

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
