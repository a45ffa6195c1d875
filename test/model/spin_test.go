package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// served is the property of a live instance: who waits is served at last. Others are the names of what the model asserts.
const served = "served"

// depth is more steps than any instance has in a row. pan says if it is too few.
const depth = 1_000_000

// search is what pan has found.
type search struct {
	states, depth int
	took          time.Duration
	broken        string // the property that does not hold. "": none
}

// pan has spin write the search of a model with these definitions, compiles it, and runs it. live: it looks for runs that go on for ever.
func pan(t *testing.T, file string, live bool, definitions ...string) search {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing, which this test runs: make model installs it, or apt-get install %s", tool, tool)
		}
	}
	dir := t.TempDir()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	options, search := []string{"-DSAFETY"}, []string{}
	if live {
		options, search = []string{"-DNFAIR=3"}, []string{"-a", "-f"} // cycles; fair: whoever can go on for ever does at last
	}
	run(t, dir, "spin", append(append([]string{"-a"}, definitions...), file)...)
	run(t, dir, "gcc", append([]string{"-O1", "-w", "-DVECTORSZ=2048", "-DMEMLIM=2800", "-o", "pan", "pan.c"}, options...)...)
	begin := time.Now()
	out := run(t, dir, "./pan", append([]string{"-m" + strconv.Itoa(depth), "-n"}, search...)...)
	s, err := read(out)
	if err != nil {
		t.Fatalf("%v %v: %v\n%s", file, definitions, err, out)
	}
	s.took = time.Since(begin)
	return s
}

// limit bounds one command: an instance that takes longer is too large.
const limit = 30 * time.Minute

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !(name == "./pan" && errors.As(err, &exit)) || ctx.Err() != nil { // pan's status tells of errors that it prints
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var (
	statesIn   = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	depthIn    = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	violatedIn = regexp.MustCompile(`(?m)^pan:\d+: (.*) \(at depth`)
)

// read reads what pan prints. A search that is not whole is an error.
func read(out string) (s search, err error) {
	states, reached := statesIn.FindStringSubmatch(out), depthIn.FindStringSubmatch(out)
	switch {
	case states == nil || reached == nil:
		return s, errors.New("want a count of states and of errors")
	case strings.Contains(out, "search depth too small"), strings.Contains(out, "reached -DMEMLIM"), strings.Contains(out, "out of memory"):
		return s, errors.New("the search is not whole")
	case !strings.Contains(out, "Full statespace search"):
		return s, errors.New("want a full search")
	}
	s.states, _ = strconv.Atoi(states[1])
	s.depth, _ = strconv.Atoi(reached[1])
	if reached[2] == "0" {
		return s, nil
	}
	found := violatedIn.FindStringSubmatch(out)
	switch {
	case found == nil:
		return s, errors.New("want to know what was violated")
	case strings.HasPrefix(found[1], "acceptance cycle"):
		s.broken = served
	case strings.HasPrefix(found[1], "assertion violated "):
		s.broken = strings.Trim(strings.TrimPrefix(found[1], "assertion violated "), "()")
	default:
		return s, fmt.Errorf("the model is wrong: %s", found[1])
	}
	return s, nil
}
