package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestArrows(t *testing.T) {
	for _, wrong := range violations(list(t), guide(t)) {
		t.Error(wrong)
	}
}

// list asks go for the graph of all modules in go.work, each by its own go.mod. In the workspace a module may lack a
// requirement, of its tests too, as long as another module has it; here that fails.
func list(t *testing.T) graph {
	t.Helper()
	noteFiles(t)
	g := graph{}
	for _, dir := range workspace(t) {
		out := goIn(t, dir, "list", "-deps", "-test", "-json=ImportPath,Standard,Imports,Deps,Name,Module", "./...")
		for dec := json.NewDecoder(strings.NewReader(out)); ; {
			var p pkg
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			if !isTest(p.ImportPath) {
				g[p.ImportPath] = p
			}
		}
	}
	require.Contains(t, g, module)
	return g
}

// isTest reports whether path names a test binary, or a package compiled for one.
func isTest(path string) bool {
	return strings.HasSuffix(path, ".test") || strings.Contains(path, " [")
}

// goIn runs go in a directory of the repository, outside of the workspace, and returns what it prints.
func goIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", dir, stderr.String())
	return string(out)
}

// noteFiles looks at all source and module files, because `go test` caches results by the files that the test itself
// looks at, and does not see what `go list` reads.
func noteFiles(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && slices.Contains([]string{".go", ".mod", ".sum", ".work"}, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		return err
	}))
}

// The table itself: known rooms stand further down, so no room can know one above it. Modules are in bold.
func TestRoomsKnowOnlyWhatIsBelow(t *testing.T) {
	rooms, modules := guide(t), workspace(t)
	for path := range outsides {
		require.NotEqual(t, -1, indexOf(path, rooms), "%s is no room", path)
	}
	for i, r := range rooms {
		require.Equal(t, slices.Contains(modules, r.path), r.module, "%s: what is in bold is a module", r.path)
		for _, known := range r.knows {
			if known == public {
				continue
			}
			at := indexOf(known, rooms)
			require.NotEqual(t, -1, at, "%s knows %s, which is no room", r.path, known)
			require.Less(t, at, i, "%s knows %s, which stands above it", r.path, known)
		}
		require.Equal(t, i, indexOf(r.path, rooms), "%s is listed twice", r.path)
		require.DirExists(t, filepath.Join(root, r.path))
	}
}

// A checker that finds nothing would pass for ever: here is a broken arrow of each kind.
func TestCheckerFindsBrokenArrows(t *testing.T) {
	const redis, testify, trace, sdk = redisClient, "github.com/stretchr/testify/require", otel + "/trace", otel + "/sdk/trace"
	rooms := guide(t)
	for _, test := range []struct {
		name string
		in   string // the package that is looked at, below the module
		pkg  pkg
		want string // "": nothing is wrong
	}{
		{"root knows what it is built of", "", pkg{Imports: paths("local", "internal/tenure", "distributed")}, ""},
		{"root knows telemetry", "", pkg{Imports: []string{trace}, Deps: []string{trace}}, ""},
		{"std", "local", pkg{Imports: []string{"sync"}, Deps: []string{"sync"}}, ""},
		{"a backend knows the contract", "distributed/redislock", pkg{Imports: paths("distributed")}, ""},
		{"a backend knows its client", "distributed/redislock", pkg{Imports: []string{redis}, Deps: []string{redis}}, ""},
		{"a package inside a room", "distributed/redislock/inner", pkg{Imports: paths("distributed")}, ""},
		{"a program knows what is public", "benchmarks", pkg{Imports: paths("config", "distributed/memlock", "")}, ""},
		{"a program around a program", "example/flashsale/inner", pkg{Imports: paths("config")}, ""},
		{"a program and the SDK", "example/flashsale", pkg{Deps: []string{sdk}}, ""},

		{"back to the root", "local", pkg{Imports: paths("")}, "local imports .: local may know [internal/keyless]"},
		{"upwards", "distributed", pkg{Imports: paths("internal/tenure")}, "distributed imports internal/tenure"},
		{"siblings", "distributed/memlock", pkg{Imports: paths("distributed/redislock")}, "imports distributed/redislock"},
		{"tiers", "local", pkg{Imports: paths("distributed")}, "local imports distributed"},
		{"root and a backend", "", pkg{Imports: paths("distributed/memlock")}, ". imports distributed/memlock"},
		{"root and a middleware", "", pkg{Imports: paths("middleware/httpguard")}, ". imports middleware/httpguard"},
		{"a program and another", "example/frameworks", pkg{Imports: paths("example/flashsale")}, "imports example/flashsale"},
		{"a benchmark and internals", "benchmarks/internal/load", pkg{Imports: paths("internal/tenure")}, "imports internal/tenure"},
		{"program and internals", "example/flashsale", pkg{Imports: paths("internal/tenure")}, "example/flashsale imports internal/tenure"},
		{"a client imported", "", pkg{Imports: []string{redis}}, ". imports " + redis},
		{"a client linked", "", pkg{Deps: []string{redis}}, ". links " + redis},
		{"telemetry below the root", "local", pkg{Deps: []string{trace}}, "local links " + trace},
		{"the SDK", "", pkg{Deps: []string{sdk}}, ". links " + sdk + ", which is for tests"},
		{"testify outside tests", "config", pkg{Deps: []string{testify}}, "config links " + testify + ", which is for tests"},
		{"a new backend", "distributed/newlock", pkg{}, "distributed/newlock is in no room"},
		{"a new directory", "util", pkg{}, "util is in no room"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := graph{"sync": {ImportPath: "sync", Standard: true}}
			g[paths(test.in)[0]] = test.pkg
			got := violations(g, rooms)
			if test.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], test.want)
		})
	}
}

// paths returns the import paths of directories of this module.
func paths(dirs ...string) []string {
	all := make([]string, len(dirs))
	for i, dir := range dirs {
		all[i] = strings.TrimSuffix(module+"/"+dir, "/")
	}
	return all
}
