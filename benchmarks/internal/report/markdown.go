package report

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

//go:embed report.md.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"join": strings.Join, "span": span, "count": count, "links": func() []load.Link { return load.Links },
}).Parse(reportText))

// Markdown returns the whole report as tables.
func Markdown(r Report) string { return fill(reportTemplate, r) }

// fill fails only with a template that is wrong.
func fill(t *template.Template, with any) string {
	var b strings.Builder
	if err := t.Execute(&b, with); err != nil {
		panic(err)
	}
	return b.String()
}

// Begins reports whether a table is the first of its scenario.
func (r Report) Begins(i int) bool { return i == 0 || r.Tables[i-1].Scenario != r.Tables[i].Scenario }

// Build is the module and its version.
func (p Participant) Build() string {
	return strings.TrimSpace(strings.TrimPrefix(p.Module, "github.com/") + " " + p.Version)
}

// Head returns the heads of the columns.
func (t Table) Head() []string { return each(t.columns(), func(c column) string { return c.head }) }

// Cells returns those of each row.
func (t Table) Cells() [][]string {
	return each(t.Rows, func(r Row) []string { return each(t.columns(), func(c column) string { return c.cell(r) }) })
}

// Troubles are what is to be said of the rows.
func (t Table) Troubles() (all []string) {
	for _, r := range t.Rows {
		n := r.Total.Violations
		switch {
		case n > 0 && t.Sale:
			all = append(all, fmt.Sprintf("**%s: %d pieces were sold twice, left without an order, or sold untold.**", r.Contender, n))
		case n > 0 && r.Total.Wait != nil:
			all = append(all, fmt.Sprintf("**%s let too many in, %d times.**", r.Contender, n))
		case n > 0:
			all = append(all, fmt.Sprintf("**%s let two in at once, %d times.**", r.Contender, n))
		}
		i := slices.IndexFunc(r.Rounds, func(round load.Round) bool { return round.Failure != "" })
		if i >= 0 && r.Total.Failed > 0 {
			all = append(all, fmt.Sprintf("%s: %d calls failed, the first with: %s", r.Contender, r.Total.Failed, r.Rounds[i].Failure))
		}
	}
	return all
}

// column is one of a table of results.
type column struct {
	head string
	cell func(Row) string
}

// columns are those of a table: what all have, and what it was about.
func (t Table) columns() []column {
	number := func(head string, value figure, format func(float64) string) column {
		return column{head, func(r Row) string { return orBlank(value(r.Total), format) }}
	}
	duration := func(head string, value figure) column {
		return number(head, value, func(v float64) string { return span(time.Duration(v)) })
	}
	index := func(head string, value figure) column {
		return number(head, value, func(v float64) string { return fmt.Sprintf("%.3f", v) })
	}
	violations := func(r Row) string { return fmt.Sprint(r.Total.Violations) }
	base := "to the best rival"
	if t.paired() {
		base = "to the same without tenures"
	}
	all := []column{
		{"contender", rowName},
		{"ops/s", func(r Row) string {
			o := r.Total.OpsPerSecond
			return fmt.Sprintf("%s (%s to %s)", count(o.Median), count(o.Min), count(o.Max))
		}},
		{base, func(r Row) string {
			return orBlank(ops(r.Total)/first(t.base(r), ops), func(v float64) string { return "× " + count(v) })
		}},
		duration("CPU/op", func(s Total) float64 { return s.ProcessCPUPerOp }),
		duration("server CPU/op", func(s Total) float64 { return s.ServerCPUPerOp }),
		duration("p50", p50), duration("p99", p99), duration("p99.9", p999),
		duration("max", func(s Total) float64 { return float64(s.Latency.Max) }),
		index("Jain goroutines", jainGoroutines), index("Jain instances", jainInstances),
		number("commands/op", commands, count),
	}
	if t.Sale || t.Audit {
		amiss := "two at once"
		if t.Sale {
			amiss = "pieces amiss"
		}
		all = append(all, column{amiss, violations}, column{"fences", func(r Row) string { return fences(r.Total, t.Sale) }})
	}
	if handOver := first(t.Rows, of(handOvers, p50)); !math.IsNaN(handOver) {
		all = append(all, duration("hand-over p50", of(handOvers, p50)), duration("p99", of(handOvers, p99)))
	}
	if wait := first(t.Rows, of(waits, p50)); !math.IsNaN(wait) {
		share := func(s Total) float64 { return ops(s) / limit(ops)(t) }
		all = append(all, number("of the limit", share, func(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }),
			duration("wait p50", of(waits, p50)), duration("p99", of(waits, p99)), column{"too many inside", violations})
	}
	return all
}

// orBlank leaves out what was not measured, or has nothing to be compared with.
func orBlank(v float64, format func(float64) string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return format(v)
}

func rowName(r Row) string {
	name := strings.TrimSuffix(r.Contender+", "+r.Setting, ", ")
	switch r.Role {
	case contender.Limit:
		return "*limit: " + name + "*"
	case contender.Floor:
		return "*floor: " + name + "*"
	}
	return name
}

// fences says whether those of a row grew with every exclusive caller; of orders, that none fell: those of a batch have one.
func fences(s Total, sale bool) string {
	switch {
	case s.Fences == 0 && sale:
		return "none"
	case s.Fences == 0:
		return "not promised"
	case s.FencesFallen == 0 && sale:
		return "never fell in " + whole(s.Fences) + " orders"
	case s.FencesFallen > 0:
		return "**fell " + whole(s.FencesFallen) + " times**"
	}
	return "grew " + whole(s.Fences) + " times"
}

// count writes a number with the digits that mean something, and thousands apart: 1,202,798; 870; 12.3; 0.0123.
func count(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return digits(v)
}

// digits writes at least three digits of a number above 1.
func digits(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(int64(math.Round(v)))
}

// whole writes a number with its thousands apart.
func whole(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// span writes a duration in the unit that suits it.
func span(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return digits(float64(d)/1e3) + " µs"
	case d < time.Second:
		return digits(float64(d)/1e6) + " ms"
	}
	return digits(d.Seconds()) + " s"
}
