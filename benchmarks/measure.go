package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/report"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// measure runs all jobs of a group and returns the report.
func (p plan) measure(ctx context.Context, m load.Machine, g contender.Group, out io.Writer) (report.Report, error) {
	r := report.New(g, p.contenders)
	r.Environment.Duration, r.Environment.Rounds, r.Environment.Command = p.duration, p.rounds, p.command
	r.Environment.Data = p.data
	if err := p.survey(ctx, m, &r.Environment); err != nil {
		return r, err
	}
	for _, c := range p.contenders {
		if err := m.CheckCommands(ctx, c); err != nil {
			return r, err
		}
	}
	for i, j := range p.jobs {
		fmt.Fprintf(out, "\n%d/%d %s, %s\n", i+1, len(p.jobs), j.scenario.Name, j.link)
		t, err := p.table(ctx, m, j, out)
		if err != nil {
			return r, err
		}
		r.Tables = append(r.Tables, t)
	}
	r.Goals = report.Judge(r.Tables)
	return r, nil
}

// survey reads the servers' versions, and measures the round trip to one Redis.
func (p plan) survey(ctx context.Context, m load.Machine, e *report.Environment) error {
	for _, s := range slices.Sorted(maps.Keys(m.Stores)) {
		version, err := m.Stores[s].Version(ctx)
		if err != nil {
			return err
		}
		if version != "" {
			e.Servers = append(e.Servers, version)
		}
	}
	if p.jobs[0].scenario.Group != contender.OverRedis {
		return nil // a limit is in each table
	}
	pings := load.Scenario{Name: "ping", Instances: 1, Workers: 1}
	for _, link := range load.Links {
		if link != load.Loopback && !slices.ContainsFunc(p.jobs, func(j job) bool { return j.link == link }) {
			continue
		}
		round, err := m.Run(ctx, contender.Ping(), pings, link, 500*time.Millisecond)
		if err != nil {
			return err
		}
		e.Ping[link] = round.Latency
	}
	return nil
}

// table runs the contenders of a job round by round, each round beginning with another one.
func (p plan) table(ctx context.Context, m load.Machine, j job, out io.Writer) (report.Table, error) {
	t := report.Table{Scenario: j.scenario.Name, Title: j.scenario.Title, Link: j.link, Audit: j.scenario.Fences, Sale: j.scenario.Sale}
	takePart := p.participants(j)
	for i, c := range takePart {
		var err error
		if takePart[i], err = p.prepare(ctx, m, j, c); err != nil {
			return t, err
		}
	}
	rounds := make([][]load.Round, len(takePart))
	for n := range p.rounds {
		for k := range takePart {
			i := (k + n) % len(takePart)
			round, err := j.run(ctx, m, takePart[i], p.duration)
			if err != nil {
				return t, err
			}
			rounds[i] = append(rounds[i], round)
		}
	}
	for i, c := range takePart {
		row := report.NewRow(c, rounds[i])
		t.Rows = append(t.Rows, row)
		show(out, row)
	}
	return t, nil
}

func (j job) run(ctx context.Context, m load.Machine, c contender.Contender, d time.Duration) (load.Round, error) {
	r, err := m.Run(ctx, c, j.scenario, j.link, d)
	if err != nil {
		err = fmt.Errorf("%s in %s, %s: %w", c.Name, j.scenario.Name, j.link, err)
	}
	return r, err
}

// prepare tries the settings of a contender under the load of a job, and returns it with the fastest. It also runs some without counting:
// over ZooKeeper, whose server is a JVM, which compiles what it runs often; and what sells most, because the first to fill a database's
// log also makes its files.
func (p plan) prepare(ctx context.Context, m load.Machine, j job, c contender.Contender) (contender.Contender, error) {
	trial, most := j, 0.0
	trial.scenario.Settle = min(j.scenario.Settle, 1) // operations per second need no full queue
	for _, with := range c.Tunings {
		r, err := trial.run(ctx, m, with, p.duration/2)
		if err != nil {
			return c, err
		}
		if r.OpsPerSecond > most {
			most, c.Setting, c.Open = r.OpsPerSecond, with.Setting, with.Open
		}
	}
	if c.Store == server.ZooKeeper || j.scenario.Sale && c.Role == contender.Subject {
		_, err := j.run(ctx, m, c, p.duration/2)
		return c, err
	}
	return c, nil
}

// participants are the contenders of a job: those chosen, with the limit and the floors that suit it.
func (p plan) participants(j job) []contender.Contender {
	s := j.scenario
	return filter(p.contenders, func(c contender.Contender) bool {
		switch {
		case c.Role == contender.Rival && s.OnlyOurs:
			return false
		case c.Role == contender.Limit && (s.Bound == load.BoundWork) != (c.Name == contender.Ideal().Name):
			return false
		}
		return s.Has(c)
	})
}

// show prints a row during the run.
func show(out io.Writer, r report.Row) {
	t := r.Total
	fmt.Fprintf(out, "  %-18s %10.0f/s  p50 %-10v p99 %-10v p99.9 %-10v  Jain %.3f %.3f  %7.4f cmds",
		strings.TrimSpace(r.Contender+" "+r.Setting), t.OpsPerSecond.Median, short(t.Latency.P50), short(t.Latency.P99), short(t.Latency.P999),
		t.JainGoroutines, t.JainInstances, t.CommandsPerOp)
	summary := func(what string, s *stats.Summary) {
		if s != nil {
			fmt.Fprintf(out, "  %s %v/%v", what, short(s.P50), short(s.P99))
		}
	}
	trouble := func(what string, n int64) {
		if n > 0 {
			fmt.Fprintf(out, "  %s %d", what, n)
		}
	}
	summary("hand-over", t.HandOver)
	trouble("VIOLATIONS", t.Violations)
	trouble("FENCES FELL", t.FencesFallen)
	trouble("failed", t.Failed)
	summary("proxy late", r.Rounds[0].ProxyLate)
	fmt.Fprintln(out)
}

// short rounds a duration for display.
func short(d time.Duration) time.Duration {
	if d > time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}
