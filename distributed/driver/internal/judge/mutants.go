package judge

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wllock/wllock/internal/testseed"
)

// Mutant is a mistake in one place of the package under test.
type Mutant = struct{ What, File, Old, Broken string }

// some is how many are tried each time; all are with WLLOCK_LONG=1. Each costs two seconds of a processor: a compiler, a linker, and what finds it.
const some = 5

// broken reports whether this is the process of a mutant, which ends with the first mistake that is found.
func broken() bool { return os.Getenv("WLLOCK_MUTANT") != "" }

// Find breaks the package of the test in one place after the other, and has its tests of these names find it, the quick ones first.
func Find(t *testing.T, all []Mutant, tests ...string) {
	if broken() {
		t.Skip("it is one")
	}
	order := rand.New(rand.NewPCG(testseed.Seed(t), 0)).Perm(len(all))
	if os.Getenv("WLLOCK_LONG") != "1" {
		order = order[:some]
	}
	for _, i := range order {
		t.Run(strings.ReplaceAll(all[i].What, " ", "_"), func(t *testing.T) { find(t, all[i], tests) })
	}
}

func find(t *testing.T, m Mutant, tests []string) {
	here, err := os.Getwd()
	must(t, err)
	source := filepath.Join(here, m.File)
	text, err := os.ReadFile(source)
	must(t, err)
	if strings.Count(string(text), m.Old) != 1 {
		t.Fatal("the line has changed: break its new form")
	}
	mutant, overlay := filepath.Join(t.TempDir(), "broken.go"), filepath.Join(t.TempDir(), "overlay.json")
	must(t, os.WriteFile(mutant, []byte(strings.Replace(string(text), m.Old, m.Broken, 1)), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: mutant}})
	must(t, err)
	must(t, os.WriteFile(overlay, replace, 0o600))
	binary := filepath.Join(t.TempDir(), "mutant.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary)
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("it does not compile: %s", out)
	}
	for _, one := range tests {
		cmd := exec.CommandContext(t.Context(), binary, "-test.failfast", "-test.timeout", "2m", "-test.run", one)
		cmd.Env = append(os.Environ(), "WLLOCK_MUTANT=1", "WLLOCK_LONG=")
		if out, err = cmd.CombinedOutput(); err != nil {
			break
		}
	}
	if err == nil {
		t.Fatalf("nothing was found: %s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "with WLLOCK_SEED=") || strings.Contains(line, "Error:") || strings.Contains(line, "panic:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
