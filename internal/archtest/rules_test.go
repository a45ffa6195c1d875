package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// design has the rules of the whole, with the functions that hold each. Those of one package stand in its doc.go, beside the code.
const design = "docs/design.md"

var (
	ruleHead = regexp.MustCompile(`^\*\*([A-Z]\d+)\.`)                                // in the design
	docHead  = regexp.MustCompile(`(?m)^//\n// ([A-Z]\d+)\. `)                        // in a doc.go, where a paragraph begins
	mention  = regexp.MustCompile(`\brules? ((?:[A-Z]\d+)(?:(?:, | and )[A-Z]\d+)*)`) // in a comment of the code
	ruleName = regexp.MustCompile(`[A-Z]\d+`)
	luaFunc  = regexp.MustCompile(`^(?:local )?function (\w+)`)
)

// places are, by rule, what enforces it, as the design names it: a link to the file under the function's name.
type places map[string]map[string]bool

func (p places) add(comment, file, function string) {
	for _, found := range mention.FindAllStringSubmatch(comment, -1) {
		for _, rule := range ruleName.FindAllString(found[1], -1) {
			if p[rule] == nil {
				p[rule] = map[string]bool{}
			}
			p[rule][fmt.Sprintf("[%s](../%s)", function, file)] = true
		}
	}
}

// TestRulesStandWhereTheyBelong compares the rules in the design and in the files doc.go with the comments "rule T2" in the code. Both
// have the same rules. Below each rule of the design stand the functions that hold it.
func TestRulesStandWhereTheyBelong(t *testing.T) {
	noteFiles(t)
	docs := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "doc.go" {
			docs[strings.TrimPrefix(filepath.ToSlash(path), root+"/")] = read(t, path)
		}
		return err
	}))
	for _, wrong := range compareRules(read(t, filepath.Join(root, design)), docs, enforced(t)) {
		t.Error(wrong)
	}
}

// compareRules returns what is wrong, with the line that would be right.
func compareRules(text string, docs map[string]string, code places) (wrong []string) {
	at := map[string]string{} // by rule: the file that has it
	stands := func(rule, file string) {
		if at[rule] != "" {
			wrong = append(wrong, fmt.Sprintf("rule %s stands in %s and in %s", rule, at[rule], file))
		}
		at[rule] = file
		if code[rule] == nil {
			wrong = append(wrong, fmt.Sprintf("rule %s in %s is named nowhere in the code", rule, file))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(docs)) {
		for _, head := range docHead.FindAllStringSubmatch(docs[file], -1) {
			stands(head[1], file)
		}
	}
	held, rule := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if head := ruleHead.FindStringSubmatch(line); head != nil {
			rule = head[1]
			stands(rule, design)
		} else if strings.HasPrefix(line, "Held by ") {
			held[rule] = line
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(code)) {
		switch want := heldBy(code[rule]); {
		case at[rule] == "":
			wrong = append(wrong, fmt.Sprintf("rule %s stands nowhere: want it in the doc.go of its package, or in %s with the line\n%s", rule, design, want))
		case at[rule] == design && held[rule] != want:
			wrong = append(wrong, fmt.Sprintf("rule %s in %s: want the line\n%s", rule, design, want))
		}
	}
	return wrong
}

func heldBy(links map[string]bool) string {
	return "Held by " + strings.Join(slices.Sorted(maps.Keys(links)), ", ")
}

// enforced finds the comments in the sources that are neither tests nor programs.
func enforced(t *testing.T) places {
	t.Helper()
	found := places{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		file, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return err
		case filepath.Ext(file) == ".lua":
			return found.inLua(path, file)
		case filepath.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go"):
			return found.inGo(path, file)
		}
		return nil
	}))
	return found
}

// inGo gives each comment to the declaration that it stands before or in.
func (p places) inGo(path, file string) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, group := range f.Comments {
		name := filepath.Base(file)
		for _, d := range f.Decls {
			if from, to := extent(set, d); from <= group.Pos() && group.Pos() <= to {
				name = declared(d, group.Pos())
			}
		}
		p.add(group.Text(), file, name)
	}
	return nil
}

// extent includes the doc comment, and one at the end of the last line.
func extent(set *token.FileSet, d ast.Decl) (from, to token.Pos) {
	file := set.File(d.Pos())
	from, to = d.Pos(), token.Pos(file.Base()+file.Size())
	if line := file.Line(d.End()); line < file.LineCount() {
		to = file.LineStart(line+1) - 1
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc != nil {
			from = d.Doc.Pos()
		}
	case *ast.GenDecl:
		if d.Doc != nil {
			from = d.Doc.Pos()
		}
	}
	return from, to
}

// declared is the name of a function, a method with its type, or of the constant or type that the comment belongs to.
func declared(d ast.Decl, at token.Pos) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return declaredBy(d.(*ast.GenDecl), at)
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	switch generic := recv.(type) {
	case *ast.IndexExpr:
		recv = generic.X
	case *ast.IndexListExpr:
		recv = generic.X
	}
	return recv.(*ast.Ident).Name + "." + fn.Name.Name
}

// declaredBy is the first name that is declared at or after the comment, or the last one.
func declaredBy(d *ast.GenDecl, at token.Pos) (name string) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			name = spec.Name.Name
		case *ast.ValueSpec:
			name = spec.Names[0].Name
		}
		if spec.End() >= at {
			return name
		}
	}
	return name
}

// inLua gives each comment to the function that it stands before or in, or to the file.
func (p places) inLua(path, file string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name, pending := filepath.Base(file), ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		_, comment, isComment := strings.Cut(line, "-- ")
		switch head := luaFunc.FindStringSubmatch(line); {
		case head != nil:
			name = head[1]
			p.add(pending+comment, file, name)
			pending = ""
			if strings.HasSuffix(line, " end") {
				name = filepath.Base(file)
			}
		case strings.HasPrefix(line, "-- "):
			pending += comment + "\n"
		default:
			p.add(pending, file, name)
			pending = ""
			if isComment {
				p.add(comment, file, name)
			}
			if line == "end" {
				name = filepath.Base(file)
			}
		}
	}
	p.add(pending, file, name)
	return nil
}

func TestRuleCheckerFindsDifferences(t *testing.T) {
	code := func() places {
		p := places{}
		p.add("as rule T1 has it, and rules T2, T3", "a/b.go", "f")
		p.add("rule T1", "a/c.lua", "g")
		return p
	}
	const right = "**T1. One.** x\nHeld by [f](../a/b.go), [g](../a/c.lua)\n**T2. Two.**\nHeld by [f](../a/b.go)\n"
	const doc = "// Package a has no rule T4.\npackage a\n\n// Rules:\n//\n// T3. Three. It is not\n// T1. Nor is it\n// T2. either.\n"
	compare := func(text, doc string) []string { return compareRules(text, map[string]string{"a/doc.go": doc}, code()) }
	assert.Empty(t, compare(right, doc))
	for name, wrong := range map[string]struct{ text, doc string }{
		"stands nowhere":             {right, ""},
		"stands twice in the design": {right + "**T1. Again.**", doc},
		"stands twice in a doc.go":   {right, doc + "//\n// T3. Again.\n"},
		"stands in both":             {right, doc + "//\n// T1. Again.\n"},
		"named nowhere, in a design": {right + "**T4. Four.**\n", doc},
		"named nowhere, in a doc.go": {right, doc + "//\n// T4. Four.\n"},
		"a place that is gone":       {strings.Replace(right, "[f](../a/b.go), [g]", "[f](../a/b.go), [h](../a/b.go), [g]", 1), doc},
		"a place that is missing":    {strings.Replace(right, "[f](../a/b.go), ", "", 1), doc},
		"no place":                   {strings.Replace(right, "Held by [f](../a/b.go), [g](../a/c.lua)\n", "", 1), doc},
	} {
		assert.NotEmpty(t, compare(wrong.text, wrong.doc), name)
	}
}

// The way of a call is told twice: to those who read the documents, and to those who read the code.
func TestTheWayOfACallIsTheSame(t *testing.T) {
	noteFiles(t)
	page, err := os.ReadFile(filepath.Join(root, design))
	require.NoError(t, err)
	code, err := os.ReadFile(filepath.Join(root, "doc.go"))
	require.NoError(t, err)
	_, way, found := strings.Cut(string(page), "\n## A call's way in and out\n")
	require.True(t, found)
	_, way, _ = strings.Cut(way, "```\n")
	way, _, _ = strings.Cut(way, "```\n")
	require.Greater(t, strings.Count(way, "\n"), 9)
	var comment strings.Builder
	for line := range strings.Lines(way) {
		comment.WriteString("//\t" + line)
	}
	require.Contains(t, string(code), comment.String())
}
