package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tests finds the tests of the repository.
type tests struct {
	top   string
	files map[string][]string // by directory: its files of tests
	texts map[string]string   // by file
}

func newTests(top string) *tests {
	return &tests{top: top, files: map[string][]string{}, texts: map[string]string{}}
}

// suites are where a case may stand that a test runs: the suite of all backends, and the tests of processes that they share.
var suites = []string{"distributed/locktest/*.go", "internal/testlocker/*.go", "internal/tlstest/*.go"}

// link is Markdown that leads to a test, which is named by its directory, its name, and perhaps a case.
func (t *tests) link(test string) (string, error) {
	dir, name, found := strings.Cut(test, " ")
	if !found {
		return "", fmt.Errorf("%q: want a directory, a blank, and a test", test)
	}
	function, of, isCase := strings.Cut(name, "/")
	file, err := t.find(dir, function)
	if err != nil {
		return "", fmt.Errorf("%q: %w", test, err)
	}
	if isCase && !t.has(dir, file, of) {
		return "", fmt.Errorf("%q: no case of that name in %s, nor in a suite", test, file)
	}
	room := strings.Replace(path.Base(dir), ".", "wllock", 1)
	return fmt.Sprintf("[`%s %s`](../%s#%s)", room, escape(name), path.Join(dir, filepath.Base(file)), function), nil
}

// find returns the file of a directory that has the test.
func (t *tests) find(dir, function string) (file string, err error) {
	head := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(`)
	for _, file := range t.list(filepath.Join(dir, "*_test.go")) {
		if head.MatchString(t.texts[file]) {
			return file, nil
		}
	}
	return "", fmt.Errorf("no such test")
}

// has reports whether a case is a literal of the test's file, a scene of its directory, or a literal of a suite.
func (t *tests) has(dir, file, of string) bool {
	if slices.ContainsFunc(t.list(filepath.Join(dir, "testdata/scenes.txt")), func(file string) bool {
		return strings.Contains(t.texts[file], "# "+of+"\n")
	}) {
		return true
	}
	files := []string{file}
	for _, pattern := range suites {
		files = append(files, t.list(pattern)...)
	}
	return slices.ContainsFunc(files, func(file string) bool { return strings.Contains(t.texts[file], strconv.Quote(of)) })
}

// list returns the files of a pattern, whose texts are known then.
func (t *tests) list(pattern string) []string {
	if files, known := t.files[pattern]; known {
		return files
	}
	files, _ := filepath.Glob(filepath.Join(t.top, pattern)) // the patterns are well formed
	t.files[pattern] = files
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			t.texts[file] = string(text)
		}
	}
	return files
}

// escape keeps a text from ending a cell or a link.
func escape(text string) string {
	return strings.NewReplacer("|", "\\|", "[", "\\[", "]", "\\]").Replace(text)
}
