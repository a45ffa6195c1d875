package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const maxWords = 35 // what a reader takes in at once

// codeAllowed is what may stay, and why: a file, a folder with all below, or a part of a sentence (with a blank). An entry that is not
// needed any more fails the test. The pages have no exception.
var codeAllowed = map[string]string{
	`strings.Join(w.before, "; ")`: "statements of SQL, as they were sent",
}

var (
	quoted   = regexp.MustCompile("`[^`\n]+(?:\n[^`\n]+)?`")
	markup   = regexp.MustCompile(`!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)\s]*\)|</?[a-zA-Z][^<>\n]*>|&[a-z]+;`)
	item     = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s|^#`)
	divider  = regexp.MustCompile(`^\s*\|[-:| ]+\|\s*$`)
	headless = regexp.MustCompile(`(?m)^\|(?:.*\|)? *\|.*\n\|[-:| ]+\|$`)
	released = regexp.MustCompile(`(?s)\n## \[\d.*`) // stays as it was written
	finish   = regexp.MustCompile(`[.?!][)"'*_]*(?:\s+|$)`)
	short    = regexp.MustCompile(`\b(?:e\.g|i\.e|vs|cf|approx|incl)\.$`)
	aWord    = regexp.MustCompile(`[\pL\d]`)
	who      = regexp.MustCompile(`(?i)\b(?:nobody|somebody|everybody|no one)\b`)
	spelling = regexp.MustCompile(`(?i)\b(?:time-outs?|cancell(?:ed|ing)|licen[c]e[sd]?)\b`)
	errorOf  = regexp.MustCompile(`^(?:errors\.New|fmt\.Errorf|\w+\.wrong|usageError|of|panic)$`) // calls with the text of an error or a problem
)

// plain blanks code, addresses and tags out of Markdown, or out of a doc comment. Lines stay lines.
func plain(text string) string {
	lines, inside := strings.Split(text, "\n"), false
	for i, line := range lines {
		if fence := strings.HasPrefix(strings.TrimSpace(line), "```"); fence || inside {
			lines[i], inside = "", inside != fence
		}
	}
	text = quoted.ReplaceAllStringFunc(strings.Join(lines, "\n"), func(s string) string { return "code" + strings.Repeat("\n", strings.Count(s, "\n")) })
	return markup.ReplaceAllString(text, "$1")
}

// sentences splits what plain returned, and calls each with a sentence and the line that it begins in. A paragraph, a heading, an item of a
// list and a cell of a table end a sentence, too.
func sentences(text string, each func(line int, text string)) {
	block, from := "", 0
	begin := func(line int, next string) { // and end the block before
		for block != "" {
			at := len(block)
			for _, m := range slices.Backward(finish.FindAllStringIndex(block, -1)) {
				if !short.MatchString(block[:m[0]+1]) {
					at = m[1]
				}
			}
			each(from, strings.Join(strings.Fields(block[:at]), " "))
			from, block = from+strings.Count(block[:at], "\n"), block[at:]
		}
		from, block = line, next
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(strings.TrimSpace(line), "> ")
		switch indented := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    "); {
		case trimmed == "", divider.MatchString(line):
			begin(0, "")
		case strings.HasPrefix(trimmed, "|"):
			for cell := range strings.SplitSeq(trimmed, "|") {
				begin(i+1, strings.TrimSpace(cell))
			}
		case item.MatchString(line), strings.HasPrefix(block, "#"), block == "" && !indented:
			begin(i+1, trimmed)
		case block != "": // indented lines alone are code
			block += "\n" + trimmed
		}
	}
	begin(0, "")
}

// faults returns the rules that a sentence breaks. Of an error's text only two are asked.
func faults(text string, isError bool) (broken []string) {
	words := len(slices.DeleteFunc(strings.Fields(text), func(word string) bool { return !aWord.MatchString(word) }))
	for rule, is := range map[string]bool{
		"a semicolon between facts: make it two sentences":        strings.Contains(text, ";"),
		"write which caller, process, waiter or server":           who.MatchString(text),
		"write timeout, canceled, license, as the API does":       spelling.MatchString(text) && !isError,
		fmt.Sprintf("%d words, want %d at most", words, maxWords): words > maxWords && !isError,
	} {
		if is {
			broken = append(broken, rule)
		}
	}
	return broken
}

// editor reports what is wrong, unless it is allowed.
type editor struct {
	t       *testing.T
	allowed map[string]string
	used    map[string]bool
}

func (e *editor) check(file string, line int, text string, broken ...string) {
	for _, rule := range broken {
		allowed := false
		for key := range e.allowed {
			if file == key || strings.HasPrefix(file, key+"/") || strings.Contains(key, " ") && strings.Contains(text, key) {
				e.used[key], allowed = true, true
			}
		}
		if !allowed {
			e.t.Errorf("%s:%d: %s:\n\t%s", file, line, rule, text)
		}
	}
}

func (e *editor) prose(file string, line int, text string) {
	sentences(text, func(at int, s string) { e.check(file, line+at-1, s, faults(s, false)...) })
}

func (e *editor) unused() {
	for key, why := range e.allowed {
		assert.True(e.t, e.used[key], "%q (%s) has nothing that must be allowed any more: remove it from the list", key, why)
	}
}

// TestPagesAreShortSentences holds README and the pages to what a reader takes in at once.
func TestPagesAreShortSentences(t *testing.T) {
	noteFiles(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	e := &editor{t: t}
	for _, path := range append(pages, root+"/README.md", root+"/CONTRIBUTING.md", root+"/SECURITY.md", root+"/CHANGELOG.md") {
		file, text := strings.TrimPrefix(path, root+"/"), plain(released.ReplaceAllString(read(t, path), ""))
		e.prose(file, 1, text)
		for _, at := range headless.FindAllStringIndex(text, -1) {
			e.check(file, strings.Count(text[:at[0]], "\n")+1, text[at[0]:at[1]], "a column without a header")
		}
	}
}

// TestDocCommentsAreShort holds to the same what is exported, the rules of packages, and the texts of errors and of panics.
func TestDocCommentsAreShort(t *testing.T) {
	noteFiles(t)
	e := &editor{t, codeAllowed, map[string]bool{}}
	parsed(t, []string{"example", "benchmarks", "tools", "test", "bin"}, func(set *token.FileSet, f *ast.File, file string) {
		if ast.IsGenerated(f) {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && errorOf.MatchString(types.ExprString(call.Fun)) {
				for _, arg := range call.Args {
					text := types.ExprString(arg)
					e.check(file, set.Position(arg.Pos()).Line, text, faults(text, true)...)
				}
			}
			return true
		})
		for _, comment := range f.Comments {
			if filepath.Base(file) == "doc.go" && comment != f.Doc { // the rules of the package
				e.prose(file, set.Position(comment.Pos()).Line, plain(comment.Text()))
			}
		}
		ast.FileExports(f)
		ast.Inspect(f, func(n ast.Node) bool {
			if doc, ok := n.(*ast.CommentGroup); ok {
				e.prose(file, set.Position(doc.Pos()).Line, plain(doc.Text()))
			}
			return true
		})
	})
	e.unused()
}

func TestSentencesAreFound(t *testing.T) {
	for text, want := range map[string][]string{
		"It waits, e.g. 1.5 s. Then `a.b; c` ends.":           {"It waits, e.g. 1.5 s.", "Then code ends."},
		"See [a; b.\nC](d.md#e). (Or not.) **Yes.**":          {"See a; b.", "C.", "(Or not.)", "**Yes.**"},
		"Two\n- items of\n  a list\n- end":                    {"Two", "- items of a list", "- end"},
		"| a. b | c |\n|---|---|\n| `d|` | e |":               {"a.", "b", "c", "code", "e"},
		"# Head\nText\n```\na; b\n```\n\n\tcode; too\n\nMore": {"# Head", "Text", "More"},
	} {
		var got []string
		sentences(plain(text), func(_ int, s string) { got = append(got, s) })
		assert.Equal(t, want, got, text)
	}
	var lines []int
	sentences("One. Two\ngoes on. Three.\n\nFour.", func(line int, _ string) { lines = append(lines, line) })
	assert.Equal(t, []int{1, 1, 2, 4}, lines)
	assert.Regexp(t, headless, "| a | |\n|---|---|\n")
	assert.NotRegexp(t, headless, "| a | b |\n|---|---|\n| c | |\n")
	assert.Len(t, faults("Nobody waits; the licen"+"ce "+strings.Repeat("is long ", 16), false), 4)
	assert.Len(t, faults("nobody waits; "+strings.Repeat("is long ", 18), true), 2)
}
