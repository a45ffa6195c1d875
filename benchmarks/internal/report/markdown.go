package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

// Markdown returns the whole report as tables.
func Markdown(r Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.Title)
	writeHead(&b, r.Environment)
	writeContenders(&b, r.Contenders)
	writeGoals(&b, r.Goals)
	for i, t := range r.Tables {
		if i == 0 || r.Tables[i-1].Scenario != t.Scenario {
			fmt.Fprintf(&b, "\n## %s\n\n![%s](%s.svg)\n", t.Title, t.Title, t.Scenario)
		}
		fmt.Fprintf(&b, "\n### %s, %s\n\n", t.Scenario, linkName(t.Link))
		writeTable(&b, t)
	}
	return b.String()
}

func writeHead(b *strings.Builder, e Environment) {
	if e.Command != "" {
		fmt.Fprintf(b, "Made by `%s`.\n\n", e.Command)
	}
	fmt.Fprintf(b, "%s, %s, %s, %d cores (%s), load average %s at the start, %s.\n",
		e.Go, strings.Join(e.Servers, ", "), e.System, e.Cores, e.CPU, e.Load, e.Time.Format("2006-01-02"))
	if e.busy() {
		b.WriteString("**The machine was busy with other work:** read the ratios, not the figures.\n")
	}
	if e.Data != "" {
		fmt.Fprintf(b, "The servers' files are in %s.\n", e.Data)
	}
	fmt.Fprintf(b, "%d rounds of %v per row (twice that where work is 1 ms), the contenders' order rotated from round to round;\n"+
		"medians, and in brackets the lowest and the highest round. Where a rival has a setting that matters, each value was\n"+
		"tried before each table, for half a round, and the one with most operations per second took part. Contenders,\n"+
		"proxy and servers share the cores, so figures differ from machine to machine, and from run to run; ratios within a\n"+
		"table are what counts.\n", e.Rounds, e.Duration)
	for _, link := range []load.Link{load.Loopback, load.Delayed} {
		if p, ok := e.Ping[link]; ok {
			fmt.Fprintf(b, "\nPING of one caller, %s: p50 %s, p99 %s.\n", linkName(link), span(p.P50), span(p.P99))
		}
	}
	b.WriteString("\nLatency is that of the whole call: wait, function, release as far as the caller waits for it. Calls still\n" +
		"waiting at the end of a round count in max alone. Jain is the index of fairness over what each goroutine and each\n" +
		"instance got; with few operations per goroutine it says little. Commands are those that clients send, not what\n" +
		"scripts call. CPU is per operation, of the process that calls (without the proxy) and of the servers.\n")
}

func writeContenders(b *strings.Builder, all []Participant) {
	b.WriteString("\n| contender | version | settings |\n|---|---|---|\n")
	for _, p := range all {
		version := strings.TrimSpace(strings.TrimPrefix(p.Module, "github.com/") + " " + p.Version)
		fmt.Fprintf(b, "| %s | %s | %s |\n", p.Name, version, p.Settings)
	}
}

func writeGoals(b *strings.Builder, goals []Verdict) {
	if len(goals) == 0 {
		return
	}
	b.WriteString("\n## Goals\n\n| scenario | goal | measured | |\n|---|---|---|---|\n")
	for _, g := range goals {
		bound, met := "at least", "met"
		if g.AtMost {
			bound = "at most"
		}
		if !g.Met {
			met = "**missed**"
		}
		fmt.Fprintf(b, "| %s, %s | %s: %s %s | %s | %s |\n", g.Scenario, linkName(g.Link), g.What, bound, count(g.Want), count(g.Got), met)
	}
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
		duration("p50", p50), duration("p99", p99), duration("p99.9", p999),
		duration("max", func(s Total) float64 { return float64(s.Latency.Max) }),
		index("Jain goroutines", jainGoroutines), index("Jain instances", jainInstances),
		number("commands/op", commands, count),
		duration("CPU/op", func(s Total) float64 { return s.ProcessCPUPerOp }),
		duration("server CPU/op", func(s Total) float64 { return s.ServerCPUPerOp }),
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

func writeTable(b *strings.Builder, t Table) {
	columns := t.columns()
	line := func(cell func(column) string) {
		for _, c := range columns {
			fmt.Fprintf(b, "| %s ", cell(c))
		}
		b.WriteString("|\n")
	}
	line(func(c column) string { return c.head })
	fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(columns)))
	for _, r := range t.Rows {
		line(func(c column) string { return c.cell(r) })
	}
	for _, r := range t.Rows {
		writeTroubles(b, r, t.Sale)
	}
}

func rowName(r Row) string {
	name := strings.TrimSuffix(r.Contender+", "+r.Setting, ", ")
	if r.Role == contender.Limit {
		return "*limit: " + name + "*"
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

func writeTroubles(b *strings.Builder, r Row, sale bool) {
	n := r.Total.Violations
	switch {
	case n > 0 && sale:
		fmt.Fprintf(b, "\n**%s: %d pieces were sold twice, left without an order, or sold untold.**\n", r.Contender, n)
	case n > 0 && r.Total.Wait != nil:
		fmt.Fprintf(b, "\n**%s let too many in, %d times.**\n", r.Contender, n)
	case n > 0:
		fmt.Fprintf(b, "\n**%s let two in at once, %d times.**\n", r.Contender, n)
	}
	if i := slices.IndexFunc(r.Rounds, func(round load.Round) bool { return round.Failure != "" }); i >= 0 && r.Total.Failed > 0 {
		fmt.Fprintf(b, "\n%s: %d calls failed, the first with: %s\n", r.Contender, r.Total.Failed, r.Rounds[i].Failure)
	}
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

// linkName is the name of a link in text.
func linkName(link load.Link) string {
	if link == load.Delayed {
		return "0.5 ms each way"
	}
	return string(link)
}
