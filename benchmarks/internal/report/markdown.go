package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

// WriteMarkdown writes the whole report as tables.
func WriteMarkdown(w io.Writer, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.Title)
	writeHead(&b, r.Environment)
	writeContenders(&b, r.Contenders)
	writeGoals(&b, r.Goals)
	for i, t := range r.Tables {
		if i == 0 || r.Tables[i-1].Scenario != t.Scenario {
			fmt.Fprintf(&b, "\n## %s\n\n![%s](%s.svg)\n", t.Title, t.Title, t.Scenario)
		}
		fmt.Fprintf(&b, "\n### %s, %s\n\n", t.Scenario, linkName(string(t.Link)))
		writeTable(&b, t)
	}
	_, err := io.WriteString(w, b.String())
	return err
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
			fmt.Fprintf(b, "\nPING of one caller, %s: p50 %s, p99 %s.\n", linkName(string(link)), span(p.P50), span(p.P99))
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
		met := "met"
		if !g.Met {
			met = "**missed**"
		}
		fmt.Fprintf(b, "| %s, %s | %s: %s %s | %s | %s |\n", g.Scenario, linkName(string(g.Link)), g.What, g.bound(),
			count(g.Want), count(g.Got), met)
	}
}

func writeTable(b *strings.Builder, t Table) {
	handOvers := len(t.Rows) > 0 && t.Rows[0].Total.HandOver != nil
	waits := len(t.Rows) > 0 && t.Rows[0].Total.Wait != nil
	head := "| contender | ops/s | to the best rival | p50 | p99 | p99.9 | max | Jain goroutines | Jain instances | commands/op | CPU/op | server CPU/op |"
	if t.paired() {
		head = strings.Replace(head, "best rival", "same without tenures", 1)
	}
	switch {
	case t.Sale:
		head += " pieces amiss | fences |"
	case t.Audit:
		head += " two at once | fences |"
	}
	if handOvers {
		head += " hand-over p50 | p99 |"
	}
	if waits {
		head += " of the limit | wait p50 | p99 | too many inside |"
	}
	fmt.Fprintf(b, "%s\n|%s\n", head, strings.Repeat("---|", strings.Count(head, "|")-1))
	for _, r := range t.Rows {
		writeRow(b, t, r, handOvers)
		if waits {
			writeWait(b, t, r.Total)
		}
		b.WriteString("\n")
	}
	for _, r := range t.Rows {
		writeTroubles(b, r, t.Sale)
	}
}

func writeRow(b *strings.Builder, t Table, r Row, handOvers bool) {
	s := r.Total
	name := r.Contender
	if r.Setting != "" {
		name += ", " + r.Setting
	}
	if r.Role == contender.Limit {
		name = "*limit: " + name + "*"
	}
	ops := s.OpsPerSecond
	fmt.Fprintf(b, "| %s | %s (%s to %s) | %s |", name, count(ops.Median), count(ops.Min), count(ops.Max), toBest(t, r))
	fmt.Fprintf(b, " %s | %s | %s | %s |", span(s.Latency.P50), span(s.Latency.P99), span(s.Latency.P999), span(s.Latency.Max))
	fmt.Fprintf(b, " %.3f | %.3f | %s |", s.JainGoroutines, s.JainInstances, count(s.CommandsPerOp))
	fmt.Fprintf(b, " %s | %s |", span(time.Duration(s.ProcessCPUPerOp)), span(time.Duration(s.ServerCPUPerOp)))
	if t.Audit {
		fmt.Fprintf(b, " %d | %s |", s.Violations, fences(s, t.Sale))
	}
	switch {
	case handOvers && s.HandOver != nil:
		fmt.Fprintf(b, " %s | %s |", span(s.HandOver.P50), span(s.HandOver.P99))
	case handOvers:
		b.WriteString(" | |")
	}
}

// writeWait writes the columns about permits.
func writeWait(b *strings.Builder, t Table, s Total) {
	share := ""
	if most, ok := limit(t, ops); ok && most > 0 {
		share = fmt.Sprintf("%.0f%%", 100*ops(s)/most)
	}
	fmt.Fprintf(b, " %s | %s | %s | %d |", share, span(s.Wait.P50), span(s.Wait.P99), s.Violations)
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
		return "**fell " + times(s.FencesFallen) + "**"
	}
	return "grew " + times(s.Fences)
}

func toBest(t Table, r Row) string {
	best, ok := t.base(r)
	if !ok || best.Total.OpsPerSecond.Median == 0 {
		return ""
	}
	return "× " + count(r.Total.OpsPerSecond.Median/best.Total.OpsPerSecond.Median)
}

func writeTroubles(b *strings.Builder, r Row, sale bool) {
	switch {
	case r.Total.Violations > 0 && sale:
		fmt.Fprintf(b, "\n**%s: %d pieces were sold twice, left without an order, or sold untold.**\n", r.Contender, r.Total.Violations)
	case r.Total.Violations > 0 && r.Total.Wait != nil:
		fmt.Fprintf(b, "\n**%s let too many in, %d times.**\n", r.Contender, r.Total.Violations)
	case r.Total.Violations > 0:
		fmt.Fprintf(b, "\n**%s let two in at once, %d times.**\n", r.Contender, r.Total.Violations)
	}
	if r.Total.Failed == 0 {
		return
	}
	for _, round := range r.Rounds {
		if round.Failure != "" {
			fmt.Fprintf(b, "\n%s: %d calls failed, the first with: %s\n", r.Contender, r.Total.Failed, round.Failure)
			return
		}
	}
}
