// Package report turns rounds into results: JSON with everything, Markdown tables, and a plot per scenario.
package report

import (
	"slices"
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
	Role      contender.Role `json:"role"`              // 0 wllock, 1 rival, 2 limit
	Base      string         `json:"base,omitempty"`    // the row it is compared with; "": the best rival
	Total     Total          `json:"total"`
	Rounds    []load.Round   `json:"rounds"`
}

// Total sums up the rounds of a row.
type Total struct {
	OpsPerSecond    stats.Spread   `json:"ops_per_second"`
	Latency         stats.Summary  `json:"latency"`
	HandOver        *stats.Summary `json:"hand_over,omitempty"`
	Wait            *stats.Summary `json:"wait,omitempty"`
	JainGoroutines  float64        `json:"jain_goroutines"`
	JainInstances   float64        `json:"jain_instances"`
	CommandsPerOp   float64        `json:"commands_per_op"`
	ProcessCPUPerOp float64        `json:"process_cpu_ns_per_op"`
	ServerCPUPerOp  float64        `json:"server_cpu_ns_per_op"`
	Violations      int64          `json:"violations"`
	Fences          int64          `json:"fences,omitempty"`
	FencesFallen    int64          `json:"fences_fallen,omitempty"`
	Failed          int64          `json:"failed"`
}

// NewRow sums up the rounds of a contender.
func NewRow(c contender.Contender, rounds []load.Round) Row {
	t := Total{
		OpsPerSecond:    stats.SpreadOf(each(rounds, func(r load.Round) float64 { return r.OpsPerSecond })),
		Latency:         summary(rounds, func(r load.Round) stats.Summary { return r.Latency }),
		JainGoroutines:  median(rounds, func(r load.Round) float64 { return r.JainGoroutines }),
		JainInstances:   median(rounds, func(r load.Round) float64 { return r.JainInstances }),
		CommandsPerOp:   median(rounds, func(r load.Round) float64 { return r.CommandsPerOp }),
		ProcessCPUPerOp: median(rounds, func(r load.Round) float64 { return r.ProcessCPUPerOp }),
		ServerCPUPerOp:  median(rounds, func(r load.Round) float64 { return r.ServerCPUPerOp }),
	}
	for _, r := range rounds {
		t.Violations += r.Violations
		t.Failed += r.Failed
		t.Fences += r.Fences
		t.FencesFallen += r.FencesFallen
	}
	if len(rounds) > 0 && rounds[0].HandOver != nil {
		h := summary(rounds, func(r load.Round) stats.Summary { return *r.HandOver })
		t.HandOver = &h
	}
	if len(rounds) > 0 && rounds[0].Wait != nil {
		w := summary(rounds, func(r load.Round) stats.Summary { return *r.Wait })
		t.Wait = &w
	}
	return Row{Contender: c.Name, Setting: c.Setting, Role: c.Role, Base: c.Base, Total: t, Rounds: rounds}
}

func each[T any](rounds []load.Round, f func(load.Round) T) []T {
	values := make([]T, len(rounds))
	for i, r := range rounds {
		values[i] = f(r)
	}
	return values
}

func median(rounds []load.Round, f func(load.Round) float64) float64 {
	return stats.Median(each(rounds, f))
}

func summary(rounds []load.Round, f func(load.Round) stats.Summary) stats.Summary {
	var s stats.Summary
	quantile := func(q func(stats.Summary) time.Duration) time.Duration {
		return stats.Median(each(rounds, func(r load.Round) time.Duration { return q(f(r)) }))
	}
	s.P50 = quantile(func(s stats.Summary) time.Duration { return s.P50 })
	s.P99 = quantile(func(s stats.Summary) time.Duration { return s.P99 })
	s.P999 = quantile(func(s stats.Summary) time.Duration { return s.P999 })
	for _, r := range rounds {
		s.Max = max(s.Max, f(r).Max)
		s.Count += f(r).Count
	}
	return s
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

// named returns the row of a contender.
func (t Table) named(name string) (Row, bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Contender == name })
	if i < 0 {
		return Row{}, false
	}
	return t.Rows[i], true
}

// base returns the row that r is compared with.
func (t Table) base(r Row) (Row, bool) {
	if t.paired() {
		return t.named(r.Base)
	}
	return t.bestRival()
}

// paired reports that rows are compared with others of the same backend.
func (t Table) paired() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Base != "" })
}

// find returns the rows of a role in a table.
func (t Table) find(role contender.Role) []Row {
	var rows []Row
	for _, r := range t.Rows {
		if r.Role == role {
			rows = append(rows, r)
		}
	}
	return rows
}

// bestRival returns the rival with the most operations per second.
func (t Table) bestRival() (best Row, ok bool) {
	for _, r := range t.find(contender.Rival) {
		if !ok || r.Total.OpsPerSecond.Median > best.Total.OpsPerSecond.Median {
			best, ok = r, true
		}
	}
	return best, ok
}
