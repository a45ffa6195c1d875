package main

import (
	"bytes"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

const asCommand = "WLLOCKVET_AS_COMMAND" // with it the test binary is wllockvet

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program makes a module of files that uses the wllock of this clone, with the versions of its dependencies.
func program(t *testing.T, files string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	mod := read(t, filepath.Join(root, "go.mod"))
	m, err := modfile.Parse("go.mod", mod, nil)
	require.NoError(t, err)
	require.NoError(t, m.AddModuleStmt("shop"))
	require.NoError(t, m.AddRequire(wllock, "v0.0.0"))
	require.NoError(t, m.AddReplace(wllock, "", root, ""))
	mod, err = m.Format()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), read(t, filepath.Join(root, "go.sum")), 0o600))
	require.NoError(t, os.CopyFS(dir, os.DirFS(files)))
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...") // downloads what is not there: analysistest does not
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := list.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return text
}

// all is every rule in one, so that what is right for its own rule is judged by the others as well, and wllock is loaded once.
func all() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "all", Doc: "all rules", Requires: rules[0].Requires,
		Run: func(pass *analysis.Pass) (any, error) {
			for _, rule := range rules {
				if _, err := rule.Run(pass); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
	}
}

func TestRules(t *testing.T) {
	results := analysistest.Run(t, program(t, "testdata"), all(), "./...")
	require.Len(t, results, len(rules), "a package for each rule")
	guardsAreKnown(t, results[0].Pass.Pkg)

	page := string(read(t, "../../docs/testing.md"))
	for _, rule := range rules {
		assert.Contains(t, page, "| `"+rule.Name+"` |")
	}
	assert.True(t, slices.ContainsFunc(results, func(r *analysistest.Result) bool {
		return slices.ContainsFunc(r.Diagnostics, func(d analysis.Diagnostic) bool { return strings.Contains(page, ": "+d.Message+"\n") })
	}), "the page has a finding as it is printed")
}

// guardsAreKnown compares what wllock exports with the functions that the rules know.
func guardsAreKnown(t *testing.T, program *types.Package) {
	t.Helper()
	holdNothing := []string{"WithFallback", "WrapOr otherwise"}
	i := slices.IndexFunc(program.Imports(), func(p *types.Package) bool { return p.Path() == wllock })
	scope := program.Imports()[i].Scope()
	locker := types.NewMethodSet(types.NewPointer(scope.Lookup("Locker").Type()))
	var exported []*types.Func
	for method := range locker.Methods() {
		exported = append(exported, method.Obj().(*types.Func))
	}
	for _, name := range scope.Names() {
		if f, ok := scope.Lookup(name).(*types.Func); ok {
			exported = append(exported, f)
		}
	}
	known := 0
	for _, f := range exported {
		name := f.Name()
		if receiver(f) != "" {
			name = receiver(f) + "." + name
		}
		for i := range f.Signature().Params().Len() {
			p := f.Signature().Params().At(i)
			fn, ok := p.Type().Underlying().(*types.Signature)
			if !f.Exported() || !ok || fn.Params().Len() == 0 || !isContext(fn.Params().At(0).Type()) || slices.Contains(holdNothing, name) || slices.Contains(holdNothing, name+" "+p.Name()) {
				continue
			}
			at, ok := guards[name]
			assert.True(t, ok && at == i, "%s runs %s under a lock, which the rule guardctx has to know", name, p.Name())
			assert.True(t, runs[name] || decorators[name], "the error of %s counts, which the rule lockerr has to know", name)
			known++
		}
	}
	assert.Equal(t, len(guards), known, "wllock has no more of some function that the rules know")
}

// TestBothWays runs the command alone and under go vet.
func TestBothWays(t *testing.T) {
	dir := program(t, "testdata")
	source := string(read(t, filepath.Join(dir, "closebound/closebound.go")))
	for name, text := range map[string]string{
		"closebound/closebound_test.go": "package main\n\nimport (\n\t\"context\"\n\n\t\"github.com/wllock/wllock\"\n)\n\nfunc end(l *wllock.Locker) error { return l.Close(context.TODO()) }\n",
		"closebound/helper.go":          "package main\n\nimport (\n\t\"context\"\n\t\"testing\"\n\n\t\"github.com/wllock/wllock\"\n)\n\nfunc closed(t *testing.T, l *wllock.Locker) { _ = l.Close(context.TODO()) }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	own, err := os.Executable()
	require.NoError(t, err)
	for name, command := range map[string][]string{"alone": {own}, "go vet": {"go", "vet", "-vettool=" + own}} {
		t.Run(name, func(t *testing.T) {
			run := func(args ...string) (findings int, text string) {
				c := exec.CommandContext(t.Context(), command[0], slices.Concat(command[1:], args)...)
				c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", asCommand+"=1")
				var out bytes.Buffer
				c.Stderr = &out
				err := c.Run()
				var exit *exec.ExitError
				if err != nil {
					require.ErrorAs(t, err, &exit)
				}
				lines := map[string]bool{}
				for line := range strings.Lines(out.String()) {
					if strings.Contains(line, ".go:") {
						lines[line] = true
					}
				}
				require.Equal(t, len(lines) > 0, err != nil, out.String())
				return len(lines), out.String()
			}
			n, text := run("./closebound")
			require.Equal(t, strings.Count(source, "// want"), n, text)
			require.Contains(t, text, "closebound.go:14:9: Close waits without a bound")
			n, text = run("-tests", "./closebound")
			require.Equal(t, strings.Count(source, "// want")+2, n, text)
		})
	}
}
