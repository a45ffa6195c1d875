package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// results are what runs have left in test/results. What is not there is nil, or missing from chaos.
type results struct {
	chaos     []chaos
	schedules []schedules
	model     *model
	mutants   *mutants
}

// chaos is a run of processes under faults.
type chaos struct {
	Backend    string              `json:"backend"`
	Shape      string              `json:"shape"`
	Store      string              `json:"store"`
	Began      time.Time           `json:"began"`
	Seconds    float64             `json:"seconds"`
	Commit     string              `json:"commit"`
	Go         string              `json:"go"`
	Seed       uint64              `json:"seed"`
	Processes  int                 `json:"processes"`
	Operations int                 `json:"operations"`
	Entries    int                 `json:"entries"`
	Contended  int                 `json:"contended"`
	Accesses   int                 `json:"accesses"`
	Refused    int                 `json:"refused"`
	Faults     map[string]int      `json:"faults"`
	Recoveries map[string]recovery `json:"recoveries"`
	Violations []violation         `json:"violations"`
}

type recovery struct {
	N      int     `json:"n"`
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
}

type violation struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// The stores of a run.
const (
	compares = "compares"
	none     = "none"
)

// schedules are those of a run in simulated time. All have held.
type schedules struct {
	Package string    `json:"package"`
	Plays   int       `json:"plays"`
	Seed    uint64    `json:"seed"` // of the first. Each next one has the next
	Seconds float64   `json:"seconds"`
	Commit  string    `json:"commit"`
	Began   time.Time `json:"began"`
}

// model is a run of the model checker, as test/model writes it.
type model struct {
	Began     time.Time `json:"began"`
	Commit    string    `json:"commit"`
	Instances []struct {
		Name    string  `json:"name"`
		About   string  `json:"about"`
		File    string  `json:"file"`
		Live    bool    `json:"live"`
		States  int     `json:"states"`
		Depth   int     `json:"depth"`
		Seconds float64 `json:"seconds"`
		Broken  string  `json:"broken"`
	} `json:"instances"`
	Mistakes []struct {
		Name     string `json:"name"`
		Rule     string `json:"rule"`
		Where    string `json:"where"`
		In       string `json:"in"`
		CaughtBy string `json:"caught_by"`
	} `json:"mistakes"`
}

// mutants is a run of tools/mutants.
type mutants struct {
	Began   time.Time `json:"began"`
	Commit  string    `json:"commit"`
	Mutants []mutant  `json:"mutants"`
}

type mutant struct {
	Rule     string  `json:"rule"`
	File     string  `json:"file"`
	Language string  `json:"language"`
	FoundBy  string  `json:"found_by"` // directory and test
	Why      string  `json:"why"`      // none has
	Seconds  float64 `json:"seconds"`
}

// read reads what is in a directory. A file that no part of the page shows is an error: results are not left out silently.
func read(dir string) (r results, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json*"))
	for _, file := range files {
		switch name := filepath.Base(file); {
		case strings.HasPrefix(name, "chaos-"):
			var one chaos
			if err = parse(file, &one); err == nil {
				err = one.check()
			}
			r.chaos = append(r.chaos, one)
		case name == "schedules.jsonl":
			r.schedules, err = lines[schedules](file)
		case name == "model.json":
			err = parse(file, &r.model)
		case name == "mutants.json":
			err = parse(file, &r.mutants)
		default:
			err = fmt.Errorf("no part of the page shows it: want chaos-*.json, schedules.jsonl, model.json or mutants.json")
		}
		if err != nil {
			return results{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	slices.SortFunc(r.chaos, func(a, b chaos) int { return strings.Compare(a.cell()+a.Store, b.cell()+b.Store) })
	return r, err
}

func parse(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// lines reads a file that has a value in each line.
func lines[T any](file string) (all []T, err error) {
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		var one T
		err = errors.Join(err, json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
	return all, err
}

// cell is the name of a backend and the shape of its service.
func (c chaos) cell() string { return c.Backend + "-" + c.Shape }

func (c chaos) check() error {
	switch {
	case c.Backend == "" || c.Shape == "" || c.Commit == "" || c.Began.IsZero():
		return fmt.Errorf("want a backend, a shape, a commit and when it began: %q, %q, %q, %v", c.Backend, c.Shape, c.Commit, c.Began)
	case c.Store != compares && c.Store != none:
		return fmt.Errorf("want the store %q or %q: %q", compares, none, c.Store)
	}
	return nil
}
