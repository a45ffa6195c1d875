package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chanceRow is a row of the guide's list of tests that failed by chance: a directory, a test, and perhaps a case of it.
var chanceRow = regexp.MustCompile("(?m)^\\| `([a-z/]+)` (Test\\w+)(?:/([^|]+))? \\| ")

// TestTestsThatFailedByChanceAreLong: none of the guide's list is gone, or runs under go test -short.
func TestTestsThatFailedByChanceAreLong(t *testing.T) {
	noteFiles(t)
	_, list, found := strings.Cut(read(t, filepath.Join(root, "CONTRIBUTING.md")), "\n### Tests that failed by chance\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n## ")
	rows := chanceRow.FindAllStringSubmatch(list, -1)
	assert.Len(t, rows, max(0, strings.Count(list, "\n|")-2), "each row begins with a directory and a test")
	for _, row := range rows {
		names, err := filepath.Glob(filepath.Join(root, row[1], "*_test.go"))
		require.NoError(t, err)
		var sources []string
		for _, name := range names {
			sources = append(sources, read(t, name))
		}
		if strings.HasSuffix(row[3], "(long)") { // a scene: see testlocker.Scenes
			assert.Contains(t, read(t, filepath.Join(root, row[1], "testdata/scenes.txt")), "# "+row[3]+"\n")
			continue
		}
		assert.True(t, isLong(t, sources, row[2], row[3]), "%s %s calls no testscope.Long, or no function with %q asks for testing.Short", row[1], row[2], row[3])
	}
}

// isLong reports that these files have a test which calls testscope.Long, or which leaves a case out of short runs: a function has the case's
// name and calls testing.Short.
func isLong(t *testing.T, sources []string, test, one string) (is bool) {
	t.Helper()
	there, leftOut := false, false
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				there = there || f.Name.Name == test
				is = is || f.Name.Name == test && calls(f, "testscope", "Long")
				leftOut = leftOut || one != "" && says(f, one) && calls(f, "testing", "Short")
			}
		}
	}
	return is || there && leftOut
}

func calls(f *ast.FuncDecl, pkg, function string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name, of := called(call)
			found = found || of == pkg && name == function
		}
		return true
	})
	return found
}

func says(f *ast.FuncDecl, text string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		found = found || ok && l.Value == strconv.Quote(text)
		return true
	})
	return found
}

// A search that finds everything would pass for ever.
func TestShortTestsAreFound(t *testing.T) {
	sources := []string{
		`package a; func TestLong(t *testing.T) { testscope.Long(t, "why") }; func TestShort(t *testing.T) { each(TestLong) }`,
		`package a; func skip(name string) bool { return testing.Short() && name == "one" }; func all() []string { return []string{"two"} }`,
	}
	for name, long := range map[string]bool{
		"TestLong": true, "TestLong/two": true, "TestShort": false, "TestShort/one": true, "TestShort/two": false, "TestGone": false, "TestGone/one": false,
	} {
		test, one, _ := strings.Cut(name, "/")
		assert.Equal(t, long, isLong(t, sources, test, one), name)
	}
}

// A repeat clears a test over a server alone, and never one that drew from a seed: with another seed it is another test.
func TestRepeatsThatDoNotCount(t *testing.T) {
	const servers, alone = "github.com/wllock/wllock/distributed/redislock", "github.com/wllock/wllock/local"
	event := func(action, pkg, test, output string) string {
		return `{"Time":"2026-11-28T12:00:00Z","Action":"` + action + `","Package":"` + pkg + `","Test":"` + test + `","Output":"` + output +
			`","Elapsed":0.1}` + "\n"
	}
	repeated := func(pkg, test, output string) string {
		return event("output", pkg, test, output) + event("fail", pkg, test, "") + event("pass", pkg, test, "")
	}
	for _, one := range []struct {
		events, says string
		red          bool
	}{
		{repeated(servers, "TestA", "late"), "flaky, passed when repeated: " + servers + " TestA\n", false},
		{repeated(servers, "TestA/b", "    x_test.go:1: WLLOCK_SEED=7\\n"), "failed with a seed, which the output of its first run has: " + servers + " TestA/b\n", true},
		{repeated(alone, "TestA", "late"), "failed, and starts no server: " + alone + " TestA\n", true},
		{event("output", servers, "TestB", "WLLOCK_SEED=7") + event("pass", servers, "TestB", ""), "", false},
	} {
		file := filepath.Join(t.TempDir(), "events.json")
		require.NoError(t, os.WriteFile(file, []byte(one.events), 0o600))
		cmd := exec.CommandContext(t.Context(), "tools/results", "repeats")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOTESTSUM_JSONFILE="+file)
		out, err := cmd.Output()
		require.Equal(t, one.says, string(out))
		require.Equal(t, one.red, err != nil)
	}
}
