package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// design has the rules of the whole. Those of one package stand in its doc.go, beside the code.
const design = "docs/design.md"

var (
	ruleHead = regexp.MustCompile(`(?m)^\*\*([A-Z]\d+)\.`)                            // in the design
	docHead  = regexp.MustCompile(`(?m)^//\n// ([A-Z]\d+)\. `)                        // in a doc.go, where a paragraph begins
	mention  = regexp.MustCompile(`\brules? ((?:[A-Z]\d+)(?:(?:, | and )[A-Z]\d+)*)`) // in a comment of the code
	ruleName = regexp.MustCompile(`[A-Z]\d+`)
)

// TestRulesStandWhereTheyBelong: a rule that the code names stands in the design or in one doc.go, and the code names each.
func TestRulesStandWhereTheyBelong(t *testing.T) {
	noteFiles(t)
	docs, code := map[string]string{}, ""
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case filepath.Base(path) == "doc.go":
			docs[path] = read(t, path)
			code += docs[path]
		case ext == ".lua", ext == ".go" && !strings.HasSuffix(path, "_test.go"):
			code += read(t, path)
		}
		return nil
	}))
	for _, wrong := range compareRules(read(t, filepath.Join(root, design)), docs, code) {
		t.Error(wrong)
	}
}

func compareRules(text string, docs map[string]string, code string) (wrong []string) {
	named, at := map[string]bool{}, map[string]string{} // at: by rule, the file that has it
	for _, found := range mention.FindAllString(code, -1) {
		for _, rule := range ruleName.FindAllString(found, -1) {
			named[rule] = true
		}
	}
	stand := func(file string, heads [][]string) {
		for _, head := range heads {
			rule := head[1]
			if at[rule] != "" {
				wrong = append(wrong, fmt.Sprintf("rule %s stands in %s and in %s", rule, at[rule], file))
			}
			if at[rule] = file; !named[rule] {
				wrong = append(wrong, fmt.Sprintf("rule %s in %s is named nowhere in the code", rule, file))
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(docs)) {
		stand(file, docHead.FindAllStringSubmatch(docs[file], -1))
	}
	stand(design, ruleHead.FindAllStringSubmatch(text, -1))
	for _, rule := range slices.Sorted(maps.Keys(named)) {
		if at[rule] == "" {
			wrong = append(wrong, fmt.Sprintf("rule %s stands nowhere: want it in the doc.go of its package, or in %s", rule, design))
		}
	}
	return wrong
}

func TestRuleCheckerFindsDifferences(t *testing.T) {
	const code = "as rule T1 has it, and rules T2, T3"
	const right = "**T1. One.** x\n**T2. Two.**\n"
	const doc = "// Package a has no rule T4.\npackage a\n\n// Rules:\n//\n// T3. Three. It is not\n// T1. Nor is it\n// T2. either.\n"
	compare := func(text, doc string) []string { return compareRules(text, map[string]string{"a/doc.go": doc}, code) }
	assert.Empty(t, compare(right, doc))
	for name, wrong := range map[string]struct{ text, doc string }{
		"stands nowhere":             {right, ""},
		"stands twice in the design": {right + "**T1. Again.**", doc},
		"stands twice in a doc.go":   {right, doc + "//\n// T3. Again.\n"},
		"stands in both":             {right, doc + "//\n// T1. Again.\n"},
		"named nowhere, in a design": {right + "**T4. Four.**\n", doc},
		"named nowhere, in a doc.go": {right, doc + "//\n// T4. Four.\n"},
	} {
		assert.NotEmpty(t, compare(wrong.text, wrong.doc), name)
	}
}

// The table of a call's way names functions that are where it says.
func TestTheWayOfACallIsThere(t *testing.T) {
	noteFiles(t)
	way := regexp.MustCompile(`(?m)^//\t\d+ +(?:(\w+)\.)?(\w+) +(\S+\.go) `).FindAllStringSubmatch(read(t, filepath.Join(root, "doc.go")), -1)
	require.Len(t, way, 13)
	for _, line := range way {
		receiver := ""
		if line[1] != "" {
			receiver = `\(\w+ \*?` + line[1] + `(\[\w+\])?\) `
		}
		require.Regexp(t, `(?m)^func `+receiver+line[2]+`\(`, read(t, filepath.Join(root, line[3])))
	}
}
