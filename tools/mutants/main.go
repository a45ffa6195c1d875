// Command mutants breaks one line after the other, and says which test finds it. A rule that no test holds is soon broken by mistake.
//
//	go -C tools run ./mutants -only 'K4|^local/'
//
// Nothing in the tree is changed: each mutant is an overlay of the go command, which embedded scripts come through as well. Short tests run,
// those of the package itself, and then of others that list.go names. Found is what a test finds again when it runs alone, and what it does
// not find without the mutant. Random tests have one seed, the same each time: what only other seeds would find is found by chance, and
// nobody holds a rule by chance.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is a line that is broken: in place of old, which the file has once, stands broken.
type mutant struct {
	what   string // the rule, and how it is broken
	file   string
	old    string
	broken string
	also   string // packages whose tests run after those of the file's own, separated by blanks
}

func main() {
	only := flag.String("only", "", "break only lines whose rule, or file, matches this `regexp`")
	results := flag.String("results", "", "write what was found to this `file` below the top of the repository")
	flag.Parse()
	err := errors.New("results are of all mutants: leave out -only or -results")
	if *only == "" || *results == "" {
		err = run(regexp.MustCompile(*only), *results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only *regexp.Regexp, results string) error {
	top, err := filepath.Abs("..") // go -C tools
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "wllock-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, alive := newReport(top), 0
	for _, m := range list {
		if !only.MatchString(m.what) && !only.MatchString(m.file) {
			continue
		}
		start := time.Now()
		line, by, err := m.judge(top, dir)
		said := "found by " + by
		if err != nil {
			alive++
			said = err.Error()
		}
		took := time.Since(start).Seconds()
		r.add(m, by, err, took)
		fmt.Printf("%s\n\t%s:%d: %s after %.1f s\n", m.what, m.file, line, said, took)
	}
	fmt.Printf("%d mutants in %v\n", len(r.Mutants), time.Since(r.Began).Round(time.Second))
	if results != "" {
		if err := r.write(filepath.Join(top, results)); err != nil {
			return err
		}
	}
	if alive > 0 {
		return fmt.Errorf("%d are not found", alive)
	}
	return nil
}

// judge breaks the line, and says what finds it. The error says why nothing does.
func (m mutant) judge(top, dir string) (line int, by string, err error) {
	overlay, line, err := m.apply(top, dir)
	for _, pkg := range m.packages() {
		if err == nil && by == "" {
			by, err = find(top, pkg, overlay)
		}
	}
	if err == nil && by == "" {
		err = errors.New("SURVIVED")
	}
	return line, by, err
}

// packages are those whose tests are to find it, the file's own first.
func (m mutant) packages() []string {
	return append([]string{strings.TrimSuffix(path.Dir(m.file), "/lua")}, strings.Fields(m.also)...)
}

// apply writes the broken file, and the overlay with it.
func (m mutant) apply(top, dir string) (overlay string, line int, err error) {
	file := filepath.Join(top, filepath.FromSlash(m.file))
	text, err := os.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	before, after, _ := strings.Cut(string(text), m.old)
	if strings.Count(string(text), m.old) != 1 {
		return "", 0, errors.New("the line has changed: break its new form")
	}
	broken, overlay := filepath.Join(dir, "broken"+filepath.Ext(file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	return overlay, 1 + strings.Count(before, "\n"), errors.Join(err,
		os.WriteFile(broken, []byte(before+m.broken+after), 0o600), os.WriteFile(overlay, replace, 0o600))
}

// find returns the directory and the test that find the mutant; "": none does. One that passes when it runs alone has failed by chance.
func find(top, pkg, overlay string) (by string, err error) {
	skip := "-skip=^$"
	for range 4 {
		failed, err := test(top, pkg, "-count=1", "-overlay="+overlay, skip)
		if failed == "" || err != nil {
			return "", err
		}
		alone := "-run=" + pattern(failed)
		if again, err := test(top, pkg, "-count=1", "-overlay="+overlay, alone); again == "" && err == nil {
			skip += "|" + pattern(failed)
			continue
		}
		if without, err := test(top, pkg, alone); without != "" || err != nil {
			return "", fmt.Errorf("%s in %s fails without it as well", failed, pkg)
		}
		return pkg + " " + failed, nil
	}
	return "", fmt.Errorf("tests in %s fail by chance: %s", pkg, skip)
}

// atEnd stands for what a package does when its tests have passed: it looks for goroutines that they have left.
const atEnd = "the end of the tests"

// pattern is what -run wants for one test.
func pattern(test string) string {
	if test == atEnd {
		return "."
	}
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^") + "$"
}

// died is the end of a process that hangs, or panics on a goroutine of no test. Somewhere behind it a test is named.
var died = regexp.MustCompile(`(?s)\n(?:panic|fatal error): .*?\b(Test\w+)`)

// test runs short tests of a package, and returns the first that fails; "": none does.
func test(top, pkg string, flags ...string) (failed string, err error) {
	args := append([]string{"test", "-json", "-short", "-failfast", "-vet=off", "-parallel=8", "-ldflags=-s -w", "-timeout=2m"}, flags...)
	cmd := exec.Command("go", append(args, "./"+pkg)...)
	cmd.Dir, cmd.Stderr = top, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=", "WLLOCK_SEED=1", "WLLOCK_LONG=", "WLLOCK_REQUIRE_SERVERS=1")
	out, err := cmd.Output()
	if err == nil {
		return "", nil
	}
	var said []byte
	for events := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Test, Output, FailedBuild string }
		switch err := events.Decode(&e); {
		case err != nil: // there is no more
			if name := died.FindSubmatch(bytes.ReplaceAll(said, []byte("TestMain"), nil)); name != nil {
				return string(name[1]), nil
			}
			return atEnd, nil
		case e.FailedBuild != "":
			return "", fmt.Errorf("it does not compile: %s", said)
		case e.Action == "fail" && e.Test != "":
			return e.Test, nil
		}
		said = append(said, e.Output...)
	}
}
