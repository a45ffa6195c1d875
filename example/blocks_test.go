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

// block is a fenced block on a page.
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
	all, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	top, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	return append(append(all, top...), "../benchmarks/README.md")
}

// blocks returns the fenced blocks of that language on a page, in order.
func blocks(t *testing.T, page, language string) (found []block) {
	t.Helper()
	text := read(t, page)
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatchIndex(text, -1) {
		if text[m[2]:m[3]] == language {
			found = append(found, block{page, text[m[4]:m[5]], 1 + strings.Count(text[:m[4]], "\n")})
		}
	}
	return found
}

// TestGoOnEveryPageCompiles: a block is a whole program, or stands in a file of this repository, where a test runs it or vet sees it,
// or is a fragment, which is compiled in a function with what it takes for granted. All are compiled at once.
func TestGoOnEveryPageCompiles(t *testing.T) {
	testscope.Long(t, "compiles programs")
	t.Parallel()
	known := sources(t)
	files := map[string]string{"shop/shop.go": shopMessages, "bank/bank.go": bankMessages}
	var at []string
	var all []block
	for _, page := range pages(t) {
		all = append(all, blocks(t, page, "go")...)
	}
	for _, b := range all {
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

// recipes are the files that the page of the recipes shows: everything here that is tested.
var recipes = []string{"*.go", "service/*.go", "service/*.yaml", "service/shopclient/*.go"}

// TestBlocksOfTheRecipesAreTested: the paragraphs of a block stand in one file, in this order, as they are but for their indentation.
func TestBlocksOfTheRecipesAreTested(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range recipes {
		found, err := filepath.Glob("recipes/" + pattern)
		require.NoError(t, err)
		for _, name := range found {
			files = append(files, unindented(read(t, name)))
		}
	}
	found := regexp.MustCompile("(?ms)^```[a-z]+\n(.*?)^```$").FindAllStringSubmatch(read(t, "../docs/recipes.md"), -1)
	require.Greater(t, len(found), 10)
	for _, b := range found {
		in := slices.ContainsFunc(files, func(file string) bool { return quotes(file, unindented(b[1])) })
		assert.True(t, in, "in no file: %s", b[1])
		for line := range strings.Lines(b[1]) {
			assert.LessOrEqual(t, len(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")), 106, "a reader has to scroll: %s", line)
		}
	}
}

// read returns a page or a source.
func read(t *testing.T, name string) string {
	t.Helper()
	_ = os.Getenv("PAGES_SUM") // changes with the pages: see the Makefile
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// Words are where somebody who knows another lock looks for them.
func TestWordsAreFound(t *testing.T) {
	t.Parallel()
	all := strings.ToLower(read(t, "../docs/glossary.md") + read(t, "../docs/recipes.md"))
	for _, word := range []string{
		"deadlock", "leader election", "cron", "reentrant", "fencing token", "semaphore", "rate limit", "load shedding", "idempotency", "mutex",
		"read-write lock", "try lock", "thundering herd", "stampede", "singleflight", "watchdog", "at-least-once", "exactly once", "backpressure",
		"split brain", "shedlock", "starvation", "timeout", "advisory lock", "optimistic",
	} {
		assert.Contains(t, all, word)
	}
}
