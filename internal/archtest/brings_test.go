package archtest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unreleased are modules that are run from a clone: they are not released, so nobody imports them.
var unreleased = []string{"example", "benchmarks", "test"}

// TestGuideHasWhatModulesBring compares docs/modules.md with the code: what an importer of a package compiles as well.
func TestGuideHasWhatModulesBring(t *testing.T) {
	want := bringsText(list(t), workspace(t))
	if !strings.Contains(read(t, filepath.Join(root, "docs/modules.md")), "\n\n"+want+"\n") {
		fmt.Print(want)
		t.Error("docs/modules.md has another table: paste the lines above")
	}
}

func bringsText(g graph, modules []string) string {
	var b strings.Builder
	b.WriteString("| import | from the module | which brings |\n|---|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(g)) {
		dir, own := ownDir(path)
		if !own || g[path].Name == "main" || strings.Contains(dir+"/", "internal/") || below(dir, unreleased) {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", shownDir(dir), shownDir(moduleOf(dir, modules)), strings.Join(brought(g, path), ", "))
	}
	return b.String()
}

func shownDir(dir string) string {
	if dir == "." {
		return "wllock"
	}
	return dir
}

// moduleOf is the innermost module around a directory.
func moduleOf(dir string, modules []string) string {
	found := "."
	for _, m := range modules {
		if below(dir, []string{m}) && len(m) > len(found) {
			found = m
		}
	}
	return found
}

// brought are the modules of others from which a package links something.
func brought(g graph, path string) []string {
	found := map[string]bool{}
	for _, dep := range g[path].Deps {
		if m := g[dep].Module; m != nil {
			if _, own := ownDir(m.Path); !own {
				found[strings.TrimPrefix(m.Path, "github.com/")] = true
			}
		}
	}
	if len(found) == 0 {
		return []string{"nothing"}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestGoIsAsOldAsDependenciesAllow: the release of Go that the root requires is one that it cannot do without, because a module
// that it requires names it. If none does any more, older releases can be supported.
func TestGoIsAsOldAsDependenciesAllow(t *testing.T) {
	noteFiles(t)
	release := readMod(t, ".", "mod").Go
	var need []string
	for line := range strings.Lines(goIn(t, ".", "list", "-m", "-f", "{{.GoVersion}} {{.Path}}", "all")) {
		if version, path, _ := strings.Cut(strings.TrimSpace(line), " "); version == release && path != module {
			need = append(need, path)
		}
	}
	require.NotEmpty(t, need, "go.mod requires Go %s, and no dependency does", release)
	assert.Contains(t, need, "go.opentelemetry.io/otel", "docs/modules.md says so")
}

func TestModuleOf(t *testing.T) {
	modules := []string{".", "distributed/sqllock", "cmd/wllock"}
	require.Equal(t, "distributed/sqllock", moduleOf("distributed/sqllock/mysql", modules))
	require.Equal(t, ".", moduleOf("distributed/redislock", modules))
	require.Equal(t, ".", moduleOf("distributed/sqllocker", modules))
}
