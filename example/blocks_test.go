package example

import (
	"encoding/json"
	"fmt"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
)

// block is a fenced block of Go on a page.
type block struct {
	page, text string
	line       int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// program reports whether the block is a whole file.
func (b block) program() bool { return strings.HasPrefix(b.text, "package main\n") }

// pages are what a reader sees of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	_ = os.Getenv("PAGES_SUM") // changes with them: see the Makefile
	all, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	top, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	return append(append(all, top...), "../benchmarks/README.md")
}

func goBlocks(t *testing.T) (all []block) {
	t.Helper()
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatchIndex(text, -1) {
			all = append(all, block{page, string(text[m[2]:m[3]]), 1 + strings.Count(string(text[:m[2]]), "\n")})
		}
	}
	return all
}

// TestGoOnEveryPageCompiles: a block is a whole program, or stands in a file of this repository, where a test runs it or vet sees it,
// or is a fragment, which is compiled in a function with what it takes for granted. All are compiled at once.
func TestGoOnEveryPageCompiles(t *testing.T) {
	testscope.Long(t, "compiles programs")
	t.Parallel()
	known := sources(t)
	files := map[string]string{"shop/shop.go": shopMessages, "bank/bank.go": bankMessages}
	var at []string
	for _, b := range goBlocks(t) {
		switch {
		case b.program():
			files[fmt.Sprintf("b%d/main.go", len(files))] = fmt.Sprintf("//line %v\n%s", b, b.text)
		case slices.ContainsFunc(known, func(source string) bool { return quotes(source, unindented(b.text)) }):
			continue
		default:
			text, err := wrapped(b)
			require.NoError(t, err, "%v", b)
			files[fmt.Sprintf("b%d/main.go", len(files))] = text
		}
		at = append(at, b.String())
	}
	require.Greater(t, len(at), 10, "blocks are found")
	assert.Empty(t, compiled(t, files), "what a fragment takes for granted is declared in granted_test.go; blocks at %v", at)
}

// compiled builds the files as packages of this module that are on no disk, and returns what it says.
func compiled(t *testing.T, files map[string]string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	packages := map[string]bool{}
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		overlay.Replace[filepath.Join(here, "blocks", name)] = file
		packages["./blocks/"+filepath.Dir(name)] = true
	}
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	config := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(config, list, 0o600))
	args := []string{"build", "-overlay", config}
	for name := range packages {
		args = append(args, name)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// sources are the Go files of the repository, without indentation.
func sources(t *testing.T) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.Contains(path, "testdata") {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, unindented(string(text)))
		return err
	}))
	return all
}

var indentation = regexp.MustCompile(`(?m)^[\t ]+`)

func unindented(text string) string { return indentation.ReplaceAllString(text, "") }

// quotes reports whether the paragraphs of a block stand in a source, in this order. A line of dots is for lines left out.
func quotes(source, block string) bool {
	for _, part := range regexp.MustCompile(`(?m)^(\.\.\.)?\n`).Split(block, -1) {
		_, after, found := strings.Cut(source, part)
		if !found {
			return false
		}
		source = after
	}
	return true
}

// wrapped makes a file of a fragment: declarations as they are, statements in a function, dots as nil.
func wrapped(b block) (string, error) {
	text := regexp.MustCompile(`: \.\.\.`).ReplaceAllString(b.text, ": nil")
	text = regexp.MustCompile(`(?m)^\.\.\.\n`).ReplaceAllString(text, "\n")
	declarations := regexp.MustCompile(`(?m)^(func|type|var|const) `).MatchString(text)
	if !declarations {
		text = fmt.Sprintf("func _() {\n//line %v\n%s\n%s}\n", b, text, "//line uses:1\n"+uses(text))
	}
	text = "package block\n\n" + text
	names, err := takenForGranted(text)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if declared := granted[filepath.Base(b.page)+":"+name]; declared != "" {
			text += "\n" + declared
		} else {
			text += "\n" + granted[name]
		}
	}
	if names, err = takenForGranted(text); err != nil {
		return "", err
	}
	for _, name := range names {
		if path, ok := imported[name]; ok {
			text = strings.Replace(text, "\n", fmt.Sprintf("\nimport %s %q\n", name, path), 1)
		}
	}
	return text, nil
}

// uses reads what the statements declare, as the reader will.
func uses(text string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^([a-z]\w*(?:, \w+)*) :=`).FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if name != "_" {
				fmt.Fprintf(&b, "_ = %s\n", name)
			}
		}
	}
	return b.String()
}

// takenForGranted are the names that a file does not declare.
func takenForGranted(text string) (names []string, err error) {
	parsed, err := parser.ParseFile(gotoken.NewFileSet(), "", text, 0)
	if err != nil {
		return nil, err
	}
	for _, id := range parsed.Unresolved { //nolint:staticcheck // enough for fragments
		if !slices.Contains(names, id.Name) {
			names = append(names, id.Name)
		}
	}
	return names, nil
}
