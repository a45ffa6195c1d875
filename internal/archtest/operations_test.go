package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runbook tells an operator of each metric, span and log line.
const runbook = "docs/operations.md"

// programs, and tools of tests, report to their own users.
var programs = []string{"example", "benchmarks", "test", "tools", "cmd", "internal/archtest", "internal/testlocker"}

// reports are what the library says to operators, with where.
type reports struct {
	metrics map[string]string // their Prometheus names, by name
	spans   map[string]bool
	lines   map[string]string // log lines, or how they begin, and where they are written
}

// TestRunbookIsComplete: an operator finds every metric, span and log line of the code in the runbook.
func TestRunbookIsComplete(t *testing.T) {
	noteFiles(t)
	text := read(t, filepath.Join(root, runbook))
	all := reported(t)
	require.Greater(t, len(all.metrics), 12, "the search finds them")
	require.Greater(t, len(all.lines), 20)
	require.Len(t, all.spans, 3)
	for name, prometheus := range all.metrics {
		assert.True(t, strings.Contains(text, "| `"+name+"` |"), "metric %s", name)
		assert.True(t, strings.Contains(text, "`"+prometheus+"`"), "%s, as Prometheus names %s", prometheus, name)
	}
	for name := range all.spans {
		assert.True(t, strings.Contains(text, "`"+name+"`"), "span %s", name)
	}
	_, lines, _ := strings.Cut(text, "\n## Log lines\n")
	lines, _, _ = strings.Cut(lines, "\n## ")
	for line, where := range all.lines {
		assert.True(t, strings.Contains(lines, "`"+line) || strings.Contains(lines, ": "+line+"`"), "log line of %s: %s", where, line)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(wllock\\.[a-z.]+)` \\| (?:histogram|counter|gauge|up-down)").FindAllStringSubmatch(text, -1) {
		assert.Contains(t, all.metrics, m[1], "the code has no such metric")
	}
	for _, m := range regexp.MustCompile(`\bwllock_[a-z_]+`).FindAllString(text, -1) {
		assert.True(t, all.exports(m), "%s: the code has no such metric", m)
	}
}

// exports reports whether Prometheus has a series, label or table of that name.
func (r reports) exports(name string) bool {
	if slices.Contains([]string{"wllock_system", "wllock_name", "wllock_tier", "wllock_outcome", "wllock_locker", "wllock_locks", "wllock_waiters"}, name) {
		return true
	}
	for _, p := range r.metrics {
		if rest, ok := strings.CutPrefix(name, p); ok && slices.Contains([]string{"", "_bucket", "_sum", "_count"}, rest) {
			return true
		}
	}
	return false
}

func reported(t *testing.T) reports {
	t.Helper()
	all := reports{metrics: map[string]string{}, spans: map[string]bool{}, lines: map[string]string{}}
	parsed(t, programs, func(_ *token.FileSet, f *ast.File, file string) {
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				all.add(call, file)
			}
			return true
		})
	})
	return all
}

// parsed calls each with every Go file of the repository that is neither a test nor in one of those directories.
func parsed(t *testing.T, without []string, each func(set *token.FileSet, f *ast.File, name string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(without, name) || name != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err == nil {
			each(set, f, name)
		}
		return err
	}))
}

// loggers are the functions that write a log line whose text they are given, here and in log/slog.
var loggers = []string{
	"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log", "LogAttrs", "NewRecord", "warn", "logHold", "log",
	"follow", // ends the line "backend is away: "
}

func (r reports) add(call *ast.CallExpr, file string) {
	name, of := called(call)
	text := firstText(call)
	switch {
	case text == "":
	case name == "instrument":
		kind, _ := called(&ast.CallExpr{Fun: call.Args[1]})
		unit, _ := call.Args[3].(*ast.BasicLit)
		r.metrics[text] = prometheusName(text, kind, unit)
	case name == "Int64Counter":
		r.metrics[text] = prometheusName(text, name, nil)
	case (name == "startSpan" || name == "Start") && strings.HasPrefix(text, "wllock."):
		r.spans[text] = true
	case slices.Contains(loggers, name) && of != "http":
		r.lines[strings.TrimSpace(text)] = file
	}
}

// called returns the name of what is called, and of what it belongs to.
func called(call *ast.CallExpr) (name, of string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name, ""
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			of = x.Name
		}
		return f.Sel.Name, of
	}
	return "", ""
}

// firstText returns the first argument that is a text, or begins with one.
func firstText(call *ast.CallExpr) string {
	for _, arg := range call.Args {
		for sum, ok := arg.(*ast.BinaryExpr); ok; sum, ok = arg.(*ast.BinaryExpr) {
			arg = sum.X
		}
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			return text
		}
	}
	return ""
}

// prometheusName is what the exporter of OpenTelemetry calls a metric.
func prometheusName(name, kind string, unit *ast.BasicLit) string {
	name = strings.ReplaceAll(name, ".", "_")
	if unit != nil && unit.Value == `"s"` {
		name += "_seconds"
	}
	if strings.HasSuffix(kind, "Counter") && !strings.HasSuffix(kind, "UpDownCounter") {
		name += "_total"
	}
	return name
}
