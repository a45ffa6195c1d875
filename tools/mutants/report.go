package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is what a run of all mutants leaves behind. tools/proof reads it.
type report struct {
	Began   time.Time `json:"began"`
	Commit  string    `json:"commit"` // of what was broken, with "-dirty" if files were changed
	Mutants []judged  `json:"mutants"`
}

// judged is what became of a mutant.
type judged struct {
	Rule     string  `json:"rule"`
	File     string  `json:"file"`
	Language string  `json:"language"`
	FoundBy  string  `json:"found_by"`      // directory and test; "": no test finds it
	Why      string  `json:"why,omitempty"` // no test does
	Seconds  float64 `json:"seconds"`
}

func newReport(top string) *report {
	cmd := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*")
	cmd.Dir = top
	commit, err := cmd.Output()
	if err != nil { // not a clone
		commit = []byte("unknown")
	}
	return &report{Began: time.Now().UTC().Truncate(time.Second), Commit: strings.TrimSpace(string(commit))}
}

func (r *report) add(m mutant, by string, err error, seconds float64) {
	j := judged{Rule: m.what, File: m.file, Language: m.language(), FoundBy: by, Seconds: float64(int(10*seconds)) / 10}
	if err != nil {
		j.FoundBy, j.Why = "", err.Error()
	}
	r.Mutants = append(r.Mutants, j)
}

// statements are the files of Go whose mutants break SQL.
var statements = []string{"fenced/dialect.go", "distributed/sqllock/dialect.go", "distributed/sqllock/statements.go"}

// language is that of the line that is broken.
func (m mutant) language() string {
	switch {
	case path.Ext(m.file) == ".lua":
		return "Lua"
	case slices.Contains(statements, m.file):
		return "SQL"
	}
	return "Go"
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
