// Package report turns rounds into results: JSON with everything, Markdown tables, and a plot per scenario.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// Report is the result of a run of one group.
type Report struct {
	Name        string        `json:"name"` // of the files
	Title       string        `json:"title"`
	Environment Environment   `json:"environment"`
	Contenders  []Participant `json:"contenders"`
	Tables      []Table       `json:"tables"`
	Goals       []Verdict     `json:"goals"`
}

// Participant is the version and settings of a contender.
type Participant struct {
	Name     string `json:"name"`
	Module   string `json:"module,omitempty"`
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings"`
}

// Table is one scenario over one link.
type Table struct {
	Scenario string    `json:"scenario"`
	Title    string    `json:"title"`
	Link     load.Link `json:"link"`
	Audit    bool      `json:"audit,omitempty"` // of exclusion and fences, has columns of its own
	Sale     bool      `json:"sale,omitempty"`  // the audit is the database's: pieces that were sold twice, or without an order, or untold
	Rows     []Row     `json:"rows"`
}

// Row is one contender in a table. Where rounds differ, Total holds medians, of the longest duration the longest.
type Row struct {
	Contender string         `json:"contender"`
	Setting   string         `json:"setting,omitempty"` // of those tried, the best here
	Role      contender.Role `json:"role"`              // 0 wllock, 1 rival, 2 limit, 3 floor
	Base      string         `json:"base,omitempty"`    // the row it is compared with; "": the best rival
	Total     Total          `json:"total"`
	Rounds    []load.Round   `json:"rounds"`
}

// Total sums up the rounds of a row.
type Total struct {
	OpsPerSecond stats.Spread `json:"ops_per_second"`
	load.Figures
}

// NewRow sums up the rounds of a contender.
func NewRow(c contender.Contender, rounds []load.Round) Row {
	var t Total
	t.OpsPerSecond = stats.SpreadOf(each(rounds, func(r load.Round) float64 { return r.OpsPerSecond }))
	t.Latency = *summary(rounds, func(r load.Round) *stats.Summary { return &r.Latency })
	t.HandOver = summary(rounds, func(r load.Round) *stats.Summary { return r.HandOver })
	t.Wait = summary(rounds, func(r load.Round) *stats.Summary { return r.Wait })
	t.JainGoroutines = median(rounds, func(r load.Round) float64 { return r.JainGoroutines })
	t.JainInstances = median(rounds, func(r load.Round) float64 { return r.JainInstances })
	t.CommandsPerOp = median(rounds, func(r load.Round) float64 { return r.CommandsPerOp })
	t.ProcessCPUPerOp = median(rounds, func(r load.Round) float64 { return r.ProcessCPUPerOp })
	t.ServerCPUPerOp = median(rounds, func(r load.Round) float64 { return r.ServerCPUPerOp })
	for _, r := range rounds {
		t.Add(r.Figures)
	}
	return Row{Contender: c.Name, Setting: c.Setting, Role: c.Role, Base: c.Base, Total: t, Rounds: rounds}
}

func each[A, B any](all []A, f func(A) B) []B {
	values := make([]B, len(all))
	for i, one := range all {
		values[i] = f(one)
	}
	return values
}

func median(rounds []load.Round, f func(load.Round) float64) float64 {
	return stats.Median(each(rounds, f))
}

// summary has the medians of quantiles, and the longest of all; nil: the rounds have none.
func summary(rounds []load.Round, f func(load.Round) *stats.Summary) *stats.Summary {
	all := each(rounds, f)
	if slices.Contains(all, nil) {
		return nil
	}
	var s stats.Summary
	s.P50 = stats.Median(each(all, func(s *stats.Summary) time.Duration { return s.P50 }))
	s.P99 = stats.Median(each(all, func(s *stats.Summary) time.Duration { return s.P99 }))
	s.P999 = stats.Median(each(all, func(s *stats.Summary) time.Duration { return s.P999 }))
	for _, one := range all {
		s.Max = max(s.Max, one.Max)
		s.Count += one.Count
	}
	return &s
}

// Violations returns how often a lock failed to exclude, over all rows.
func (r Report) Violations() int64 { return r.add(func(t Total) int64 { return t.Violations }) }

// FencesFallen returns how often a fence was not above the one before, over all rows.
func (r Report) FencesFallen() int64 { return r.add(func(t Total) int64 { return t.FencesFallen }) }

func (r Report) add(f func(Total) int64) int64 {
	var n int64
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			n += f(row.Total)
		}
	}
	return n
}

// Write puts the tables as JSON and Markdown, named after the report, and a plot per scenario into a folder.
func Write(dir string, r Report) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	errs := []error{os.MkdirAll(dir, 0o755), e.Encode(r)}
	save := func(name, text string) {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	save(r.Name+".json", text.String())
	save(r.Name+".md", Markdown(r))
	for _, t := range r.Tables {
		save(t.Scenario+".svg", SVG(slices.DeleteFunc(slices.Clone(r.Tables), func(o Table) bool { return o.Scenario != t.Scenario })))
	}
	return errors.Join(errs...)
}

// where returns some rows of a table.
func (t Table) where(is func(Row) bool) (rows []Row) {
	for _, r := range t.Rows {
		if is(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// of returns the rows of a role.
func (t Table) of(role contender.Role) []Row {
	return t.where(func(r Row) bool { return r.Role == role })
}

// named returns the row of a contender, if there is one.
func (t Table) named(name string) []Row {
	return t.where(func(r Row) bool { return r.Contender == name })
}

// bestRival returns the rival with the most operations per second, if there is one.
func (t Table) bestRival() []Row {
	rivals := t.of(contender.Rival)
	slices.SortStableFunc(rivals, func(a, b Row) int { return cmp.Compare(ops(b.Total), ops(a.Total)) })
	return rivals[:min(1, len(rivals))]
}

// paired reports that rows are compared with others of the same backend.
func (t Table) paired() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Base != "" })
}

// base returns the row that r is compared with.
func (t Table) base(r Row) []Row {
	if t.paired() {
		return t.named(r.Base)
	}
	return t.bestRival()
}

// Environment is where and how a run took place.
type Environment struct {
	Time     time.Time                   `json:"time"`
	Commit   string                      `json:"commit,omitempty"` // of the code; "": not known
	Go       string                      `json:"go"`
	System   string                      `json:"system"`
	CPU      string                      `json:"cpu"`
	Cores    int                         `json:"cores"`
	Load     string                      `json:"load_average"` // of the last minute, before the run: should be near 0
	Servers  []string                    `json:"servers"`
	Command  string                      `json:"command,omitempty"` // that makes the results again
	Data     string                      `json:"data,omitempty"`    // folder of the servers' files
	Duration time.Duration               `json:"duration_ns"`
	Rounds   int                         `json:"rounds"`
	Ping     map[load.Link]stats.Summary `json:"ping"` // one caller in an idle process
}

// New returns a report without tables, from this machine and build.
func New(g contender.Group, cs []contender.Contender) Report {
	r := Report{Name: g.String(), Title: g.Title(), Contenders: participants(cs), Environment: Environment{
		Time: time.Now().UTC().Truncate(time.Second), Commit: commit(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPU: find("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), Load: find("/proc/loadavg", `^(\S+)`),
		Cores: runtime.GOMAXPROCS(0), Ping: make(map[load.Link]stats.Summary),
	}}
	if g == contender.OverRedis {
		r.Name = "results"
	}
	return r
}

// commit returns that of the folder, and says so if the code differs from it.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "" // no repository, or no git
	}
	name := strings.TrimSpace(string(head))
	if changed, err := exec.Command("git", "status", "--porcelain", "--", "*.go", "*.lua").Output(); err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}

// find returns what a pattern finds in a file.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return "unknown"
}

// Busy reports whether other work took a good part of a core before the run.
func (e Environment) Busy() bool {
	load, err := strconv.ParseFloat(e.Load, 64)
	return err == nil && load > 0.5
}

// participants describes the contenders of a run.
func participants(cs []contender.Contender) []Participant {
	versions := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	versions["github.com/wllock/wllock"] = "this repository"
	all := make([]Participant, len(cs))
	for i, c := range cs {
		all[i] = Participant{Name: c.Name, Module: c.Module, Version: versions[c.Module], Settings: c.Settings}
	}
	return all
}
