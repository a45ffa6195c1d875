package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages are what a reader sees: every Markdown file, and those that set variables.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "benchmarks/*.md", ".github/workflows/*", "compose.yaml", "deploy/*", "example/recipes/service/*.yaml"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && !info.IsDir() {
				all[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = read(t, name)
			}
		}
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// code reads the files of a directory and below, with its tests or without.
func code(t *testing.T, dir string, tests bool) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && (tests || !strings.HasSuffix(path, "_test.go")) && filepath.Base(path) != "commands_test.go" {
			b.WriteString(read(t, path))
		}
		return err
	}))
	return b.String()
}

var (
	fenced      = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	inline      = regexp.MustCompile("`([^`\n]+)`")
	drawing     = regexp.MustCompile(`(?m)^.*[│─].*$`)
	continued   = regexp.MustCompile(`\\\n\s*`)
	quotedWord  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	commandLine = regexp.MustCompile(`(?m)(?:^|^\$ |&& |; )(?:[A-Z_]+=\S* )*(make|go|wllock|docker|tools/[a-z]+)((?: +[^ \n#;|&]+)+)`)
	aFlag       = regexp.MustCompile(`^--?([a-z][\w-]*)(?:=.*)?$`)
	aVariable   = regexp.MustCompile(`\bWLLOCK_[A-Z_]*[A-Z]\b`)
)

// commands returns what of a page is typed into a shell: words of commands that this repository can judge.
func commands(page string) (all [][]string) {
	var typed []string
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		if slices.Contains([]string{"", "sh", "bash", "console"}, m[1]) {
			typed = append(typed, m[2])
		}
	}
	for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		typed = append(typed, m[1])
	}
	for _, text := range typed {
		text = drawing.ReplaceAllString(text, "")
		text = quotedWord.ReplaceAllString(continued.ReplaceAllString(text, " "), "quoted")
		for _, c := range commandLine.FindAllStringSubmatch(text, -1) {
			all = append(all, append([]string{c[1]}, strings.Fields(c[2])...))
		}
	}
	return all
}

// TestCommandsOnEveryPageExist: what a page says to type names targets, programs, modules and flags that are there.
func TestCommandsOnEveryPageExist(t *testing.T) {
	noteFiles(t)
	judge := newJudge(t)
	found := 0
	for name, text := range pages(t) {
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, c := range commands(text) {
			found++
			assert.Empty(t, judge.mistake(c), "%s: %s", name, strings.Join(c, " "))
		}
	}
	require.Greater(t, found, 50, "commands are found")
}

// judge knows what can be typed.
type judge struct {
	t       *testing.T
	targets string
	modules []string
	cli     string
	code    map[string]string // of programs
}

func newJudge(t *testing.T) *judge {
	return &judge{t: t, targets: read(t, filepath.Join(root, "Makefile")), modules: workspace(t), cli: code(t, "cmd/wllock", false), code: map[string]string{}}
}

// mistake returns what is wrong with a command, or "".
func (j *judge) mistake(words []string) string {
	args := words[1:]
	switch words[0] {
	case "make":
		return j.make(args)
	case "go":
		return j.goCommand(args)
	case "wllock":
		return j.wllock(args)
	case "docker":
		return ""
	}
	if _, err := os.Stat(filepath.Join(root, words[0])); err != nil {
		return "no such file"
	}
	return ""
}

func (j *judge) make(args []string) string {
	for _, arg := range args {
		name, _, variable := strings.Cut(arg, "=")
		switch {
		case variable && !strings.Contains(j.targets, "$("+name+")"):
			return "no variable " + name
		case !variable && !strings.HasPrefix(arg, "-") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(arg)+`:`).MatchString(j.targets):
			return "no target " + arg
		}
	}
	return ""
}

// goCommand judges go run of a directory here, and go get and install of a module here.
func (j *judge) goCommand(args []string) string {
	dir := root
	for len(args) > 1 && args[0] == "-C" {
		dir, args = filepath.Join(root, args[1]), args[2:]
	}
	if len(args) == 0 {
		return ""
	}
	for i, arg := range args[1:] {
		if path, ok := ownDir(strings.Split(arg, "@")[0]); ok && (args[0] == "get" || args[0] == "install") && !slices.Contains(j.modules, path) && !isTool(args[0], path) {
			return arg + " is no module"
		}
		if strings.HasPrefix(arg, "./") && !strings.HasSuffix(arg, "...") {
			program := filepath.Join(dir, arg)
			if info, err := os.Stat(program); err != nil || !info.IsDir() {
				return "no directory " + arg
			}
			if args[0] == "run" {
				return j.flags(program, args[i+2:])
			}
		}
	}
	return ""
}

// isTool reports whether a program of the tools is installed. Their module has no version: go install takes its last commit.
func isTool(verb, path string) bool {
	info, err := os.Stat(filepath.Join(root, path))
	return verb == "install" && strings.HasPrefix(path, tools+"/") && err == nil && info.IsDir()
}

// flags looks for the flags of a program as strings in its code.
func (j *judge) flags(program string, args []string) string {
	dir, err := filepath.Rel(root, program)
	require.NoError(j.t, err)
	if j.code[dir] == "" {
		j.code[dir] = code(j.t, dir, false)
		if beside := filepath.Join(dir, "../internal"); beside != "internal" { // two programs over the same packages
			if _, err := os.Stat(filepath.Join(root, beside)); err == nil {
				j.code[dir] += code(j.t, beside, false)
			}
		}
	}
	return unknownFlag(args, j.code[dir])
}

func unknownFlag(args []string, code string) string {
	for _, arg := range args {
		if m := aFlag.FindStringSubmatch(arg); m != nil && m[1] != "help" && m[1] != "h" && !strings.Contains(code, `"`+m[1]+`"`) {
			return "no flag " + arg
		}
	}
	return ""
}

func (j *judge) wllock(args []string) string {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	if len(args) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(args[0]) && args[0] != "help" && args[0] != "completion" && !strings.Contains(j.cli, `Name: "`+args[0]+`"`) {
		return "no command " + args[0]
	}
	return unknownFlag(args, j.cli)
}

// TestVariablesOnEveryPageExist: a misspelled variable is refused at start, so a page must not show one.
func TestVariablesOnEveryPageExist(t *testing.T) {
	noteFiles(t)
	known := code(t, ".", true) + read(t, filepath.Join(root, "Makefile")) + read(t, filepath.Join(root, "tools/api"))
	for name, text := range pages(t) {
		for _, variable := range aVariable.FindAllString(text, -1) {
			assert.Regexp(t, regexp.MustCompile(`\b`+variable+`\b`), only(known, variable), "%s names %s", name, variable)
		}
	}
}

// only keeps a message short: the variable, if it is known.
func only(known, variable string) string {
	if strings.Contains(known, variable) {
		return variable
	}
	return ""
}

// A judge that finds nothing would pass for ever.
func TestWrongCommandsAreFound(t *testing.T) {
	noteFiles(t)
	const page = "Run `make tset`, `go run ./example/flashsale -bakend x` and `wllock whose product`; `wllock.WithWait` is a name.\n" +
		"```\nmake lint PKGS=x\nWLLOCK_SEED=1 go run ./example/nothing # or\n" +
		"wllock who --keys && go get github.com/wllock/wllock/distributed/redislock\nwllock run cron report -- ./report --all\n" +
		"go install github.com/wllock/wllock/tools/nothing@latest\ngo run ./example/flashsale -backend redis://h \\\n  -procs 4\n```\n"
	judge := newJudge(t)
	var wrong []string
	for _, c := range commands(page) {
		if m := judge.mistake(c); m != "" {
			wrong = append(wrong, m)
		}
	}
	require.ElementsMatch(t, []string{
		"no target tset", "no flag -bakend", "no command whose", "no variable PKGS", "no directory ./example/nothing", "no flag --keys",
		"github.com/wllock/wllock/distributed/redislock is no module", "github.com/wllock/wllock/tools/nothing@latest is no module",
	}, wrong)
}

// TestTheListOfPagesHasAll of docs/.
func TestTheListOfPagesHasAll(t *testing.T) {
	noteFiles(t)
	assert.Contains(t, read(t, filepath.Join(root, "README.md")), "(docs/README.md)")
	list := read(t, filepath.Join(root, "docs/README.md"))
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, page := range all {
		if name := filepath.Base(page); name != "README.md" {
			assert.Contains(t, list, "("+name+")")
		}
	}
}

// TestEveryModuleHasAREADME, because package sites show one for each: its name, what it is, and links that lead somewhere.
func TestEveryModuleHasAREADME(t *testing.T) {
	noteFiles(t)
	for _, dir := range append(workspace(t), "tools") {
		text := read(t, filepath.Join(root, dir, "README.md"))
		assert.Regexp(t, `^# \w`, text, dir)
		for _, link := range pageLink.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(root, dir, link[1]))
			assert.NoError(t, err, "%s links %s", dir, link[1])
		}
	}
}

var (
	pageLink = regexp.MustCompile(`\]\(([^):#]+)(?:#[^)]*)?\)`)
	tableRow = regexp.MustCompile(`(?m)^\|.*\n`)
	aLink    = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	sentence = regexp.MustCompile(`[.!?:]\**\s`)
)

// TestREADMEIsShort: it is read in two minutes, or not at all.
func TestREADMEIsShort(t *testing.T) {
	noteFiles(t)
	text := fenced.ReplaceAllString(read(t, filepath.Join(root, "README.md")), "")
	assert.Less(t, len(strings.Fields(text)), 650, "words")
	assert.LessOrEqual(t, strings.Count(text[strings.Index(text, "## Documentation"):], "]("), 12, "links to pages")
	text = aLink.ReplaceAllString(tableRow.ReplaceAllString(text, ""), "$1")
	for _, s := range sentence.Split(text, -1) {
		assert.LessOrEqual(t, len(strings.Fields(s)), 30, s)
		assert.NotContains(t, s, ";")
	}
}
