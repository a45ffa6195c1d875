package model

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock/internal/testscope"
)

// results is the form of test/results/model.json, which tools/proof shows.
type results struct {
	Began     time.Time  `json:"began"`
	Commit    string     `json:"commit"`
	Instances []instance `json:"instances"`
	Mistakes  []mistake  `json:"mistakes"`
}

// TestSearch runs the smallest instance, and a mistake.
func TestSearch(t *testing.T) {
	testscope.Long(t, "compiles C programs")
	i := instances[0]
	i.search(t)
	if i.Broken != "" {
		t.Errorf("%s: %s does not hold", i.Name, i.Broken)
	}
	mistakes[0].search(t)
}

// TestModel runs all, and writes WLLOCK_MODEL_RESULTS. With WLLOCK_MODEL it runs those that match, and writes nothing.
func TestModel(t *testing.T) {
	testscope.Longest(t, "all instances of the models")
	r := results{Began: time.Now(), Commit: commit(t), Instances: instances, Mistakes: mistakes}
	only := regexp.MustCompile(os.Getenv("WLLOCK_MODEL"))
	t.Run("all", func(t *testing.T) {
		each := func(name string, search func(t *testing.T)) {
			t.Run(name, func(t *testing.T) {
				if !only.MatchString(name) {
					t.Skipf("WLLOCK_MODEL=%v", only)
				}
				t.Parallel()
				search(t)
			})
		}
		for k := range r.Instances {
			i := &r.Instances[k]
			each(i.Name, func(t *testing.T) {
				i.search(t)
				if i.Broken != "" {
					t.Errorf("%s does not hold", i.Broken)
				}
			})
		}
		for k := range r.Mistakes {
			each(r.Mistakes[k].Name, r.Mistakes[k].search)
		}
	})
	t.Logf("\n%s", r)
	if file := os.Getenv("WLLOCK_MODEL_RESULTS"); file != "" && only.String() == "" {
		text, err := json.MarshalIndent(r, "", "\t")
		if err == nil {
			err = os.WriteFile(file, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// commit is what was checked, and "-dirty" behind it if files have changed since.
func commit(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty").Output()
	if err != nil {
		t.Fatalf("git describe: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func (i *instance) search(t *testing.T) {
	s := pan(t, i.File, i.Live, i.Definitions...)
	i.ran, i.States, i.Depth, i.Seconds, i.Broken = true, s.states, s.depth, s.took.Seconds(), s.broken
}

func (m *mistake) search(t *testing.T) {
	definitions := append([]string{"-DMISTAKE_" + m.Name}, m.in().Definitions...)
	if m.define != "" {
		definitions = append(definitions, "-D"+m.define)
	}
	s := pan(t, m.in().File, m.in().Live, definitions...)
	if m.ran, m.CaughtBy = true, s.broken; m.CaughtBy != m.By {
		t.Errorf("it was caught by %q, want %s", m.CaughtBy, m.By)
	}
}

// in returns the instance in which it is made.
func (m *mistake) in() *instance {
	for k := range instances {
		if instances[k].Name == m.In {
			return &instances[k]
		}
	}
	panic("no instance " + m.In)
}

// String is a table of what has run.
func (r results) String() string {
	var b strings.Builder
	for _, i := range r.Instances {
		if !i.ran {
			continue
		}
		fmt.Fprintf(&b, "%-50s %12d states %8d deep %6.1f s  %s\n", i.Name, i.States, i.Depth, i.Seconds, verdict(i.Broken))
	}
	for _, m := range r.Mistakes {
		if !m.ran {
			continue
		}
		fmt.Fprintf(&b, "%-50s %s\n", m.Name, verdict(m.CaughtBy))
	}
	return b.String()
}

func verdict(broken string) string {
	if broken == "" {
		return "holds"
	}
	return "breaks " + broken
}

// TestSearchesAreRead: a search that is not whole is no result.
func TestSearchesAreRead(t *testing.T) {
	const whole = "Full statespace search for:\nState-vector 1 byte, depth reached 12, errors: 0\n  34 states, stored\n"
	for out, want := range map[string]search{
		whole: {states: 34, depth: 12},
		"pan:1: assertion violated oneHolder (at depth 7)\n" + strings.Replace(whole, "errors: 0", "errors: 1", 1): {states: 34, depth: 12, broken: "oneHolder"},
		"pan:1: acceptance cycle (at depth 7)\n" + strings.Replace(whole, "errors: 0", "errors: 1", 1):             {states: 34, depth: 12, broken: served},
	} {
		if s, err := read(out); err != nil || s != want {
			t.Errorf("got %+v, %v, want %+v of %q", s, err, want, out)
		}
	}
	for _, out := range []string{
		"", "error: max search depth too small\n" + whole, "pan: reached -DMEMLIM bound\n" + whole, strings.Replace(whole, "Full", "Bit", 1),
		strings.Replace(whole, "errors: 0", "errors: 1", 1), "pan:1: invalid array index (at depth 7)\n" + strings.Replace(whole, "errors: 0", "errors: 1", 1),
	} {
		if _, err := read(out); err == nil {
			t.Errorf("want an error of %q", out)
		}
	}
}
