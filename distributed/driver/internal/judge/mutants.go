package judge

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Mutant is a mistake in one place of the package under test. Text stands there today, without what is in «»: the mistake adds that, and
// takes away what is in ‹›. An @ is true in the process that is to find the mistake, and false in those that are to find another one: so
// all share a binary.
type Mutant = struct {
	What, File, Text string
	By               string // the tests that find it
}

// What a mistake takes away and what it adds.
var taken, added = regexp.MustCompile("‹([^›]*)›"), regexp.MustCompile("«([^»]*)»")

// broken reports whether this is the process of a mutant, which ends with the first mistake that is found.
func broken() bool { return os.Getenv("WLLOCK_MUTANT") != "" }

// Find makes one mistake after the other in the package of the test, and has its tests find them.
func Find(t *testing.T, all []Mutant) {
	if broken() {
		t.Skip("it is one")
	}
	binary := build(t, all)
	for i, m := range all {
		t.Run(strings.ReplaceAll(m.What, " ", "_"), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, "-test.failfast", "-test.timeout", "2m", "-test.run", m.By)
			cmd.Env = append(os.Environ(), fmt.Sprintf("WLLOCK_MUTANT=%d", i), "WLLOCK_LONG=", "WLLOCK_PLAYS=", "WLLOCK_SEED=1") // the same schedules each time
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("nothing was found: %s", out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "WLLOCK_SEED=") || strings.Contains(line, "Error:") || strings.HasPrefix(line, "panic:") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// build compiles the tests of a package with all mistakes in it.
func build(t *testing.T, all []Mutant) (binary string) {
	here, err := os.Getwd()
	must(t, err)
	dir, texts := t.TempDir(), map[string]string{}
	for i, m := range all {
		if _, read := texts[m.File]; !read {
			text, err := os.ReadFile(m.File)
			must(t, err)
			texts[m.File] = string(text)
		}
		today := taken.ReplaceAllString(added.ReplaceAllString(m.Text, ""), "$1")
		if strings.Count(texts[m.File], today) != 1 {
			t.Fatalf("%s: the line has changed: break its new form", m.What)
		}
		mistaken := added.ReplaceAllString(taken.ReplaceAllString(m.Text, ""), "$1")
		texts[m.File] = strings.Replace(texts[m.File], today, strings.ReplaceAll(mistaken, "@", fmt.Sprintf(`isMutant("%d")`, i)), 1)
	}
	name, _, _ := strings.Cut(texts[all[0].File][strings.Index(texts[all[0].File], "\npackage ")+1:], "\n")
	texts["mutant.go"] = name + `

import "os"

var mutant = os.Getenv("WLLOCK_MUTANT")

func isMutant(n string) bool { return mutant == n }
`
	replace := map[string]string{}
	for file, text := range texts {
		replace[filepath.Join(here, file)] = filepath.Join(dir, file)
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	must(t, err)
	changes := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(changes, overlay, 0o600))
	binary = filepath.Join(dir, "mutants.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", changes, "-o", binary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("they do not compile: %s", out)
	}
	return binary
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
