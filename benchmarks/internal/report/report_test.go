package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

var update = flag.Bool("update", false, "write the golden files anew")

func round(ops float64, p50 time.Duration) load.Round {
	h := stats.Summary{Count: 9, P50: p50 / 2, P99: p50, P999: p50, Max: p50}
	return load.Round{Seconds: 1, Ops: int64(ops), OpsPerSecond: ops, Figures: load.Figures{
		HandOver:       &h,
		Latency:        stats.Summary{Count: uint64(ops), P50: p50, P99: 3 * p50, P999: 5 * p50, Max: 8 * p50},
		JainGoroutines: 0.999, JainInstances: 1, CommandsPerOp: 0.0123, ProcessCPUPerOp: 1500, ServerCPUPerOp: 80,
	}}
}

func row(name string, role contender.Role, rounds ...load.Round) Row {
	return NewRow(contender.Contender{Name: name, Role: role}, rounds)
}

// sample is a report with all that can be in one.
func sample() Report {
	tables := []Table{
		{Scenario: "hot-8x16", Title: "One hot key & <more>", Link: load.Loopback, Rows: []Row{
			row("wllock", contender.Subject, round(300_000, 20*time.Microsecond), round(340_000, 22*time.Microsecond), round(310_000, 25*time.Microsecond)),
			row("redislock", contender.Rival, round(3000, 2*time.Millisecond)),
			row("slow", contender.Rival, load.Round{Figures: load.Figures{Violations: 2, Failed: 1}, Failure: "no luck"}),
			row("LPUSH+BLPOP", contender.Floor, round(200_000, 40*time.Microsecond)),
			row("PING", contender.Limit, round(150_000, 50*time.Microsecond)),
		}},
		{Scenario: "hot-8x16", Title: "One hot key & <more>", Link: load.Delayed, Rows: []Row{
			row("wllock", contender.Subject, round(850, 1200*time.Microsecond)),
			row("redislock", contender.Rival, round(450, 2*time.Second)),
		}},
	}
	return Report{
		Name: "results", Title: "Results",
		Environment: Environment{
			Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Commit: "0123abc", Go: "go1.26", System: "linux/amd64", CPU: "a CPU", Cores: 2,
			Load: "0.05", Servers: []string{"Redis 7.0.15"}, Duration: time.Second, Rounds: 3,
			Ping: map[load.Link]stats.Summary{load.Delayed: {P50: 1090 * time.Microsecond, P99: 1200 * time.Microsecond}},
		},
		Contenders: []Participant{{Name: "wllock", Module: "github.com/wllock/wllock", Version: "v1", Settings: "defaults"}},
		Tables:     tables,
		Goals:      Judge(tables),
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "go test -update writes it anew")
}

func TestMarkdown(t *testing.T) { golden(t, "results.md", Markdown(sample())) }

func TestAWarmTableSaysWhatThatIs(t *testing.T) {
	for _, link := range load.Links {
		assert.Equal(t, link == load.Warm, strings.Contains(Markdown(Report{Tables: []Table{{Link: link}}}), "Warm:"), link)
	}
}

func TestSVG(t *testing.T) { golden(t, "hot-8x16.svg", SVG(sample().Tables)) }

func TestSVGIsWellFormedWhateverTheValues(t *testing.T) {
	tables := sample().Tables
	tables = append(tables, Table{Title: "empty"}, Table{Rows: []Row{row("nothing", contender.Rival, load.Round{})}})
	for _, some := range [][]Table{tables, tables[2:3], tables[3:]} {
		text := SVG(some)
		assert.NotContains(t, text, "NaN")
		assert.NotContains(t, text, "Inf")
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	}
}

func TestTotalsAreMediansAndTheLongestMaximum(t *testing.T) {
	r := row("x", contender.Rival, round(10, 4*time.Second), round(30, time.Second), round(20, 3*time.Second)).Total
	assert.Equal(t, stats.Spread{Median: 20, Min: 10, Max: 30}, r.OpsPerSecond)
	assert.Equal(t, 3*time.Second, r.Latency.P50)
	assert.Equal(t, 32*time.Second, r.Latency.Max)
	assert.Equal(t, uint64(60), r.Latency.Count)
	assert.Equal(t, int64(2), sample().Violations())
}

func TestGoalsAreHeldAgainstTheBestRival(t *testing.T) {
	verdicts := sample().Goals
	find := func(what string, link load.Link) Verdict {
		for _, v := range verdicts {
			if v.What == what && v.Link == link {
				return v
			}
		}
		t.Fatalf("no verdict for %q", what)
		return Verdict{}
	}
	faster := find("times the best rival's ops/s", load.Loopback)
	assert.InDelta(t, 310_000.0/3000, faster.Got, 1e-9)
	assert.True(t, faster.Met)
	assert.False(t, find("times the best rival's ops/s", load.Delayed).Met)
	assert.True(t, find("commands per operation", load.Loopback).Met)
	assert.Empty(t, Judge([]Table{{Scenario: "hot-8x16", Link: load.Loopback}}), "nothing was measured")
}

func TestFilesAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	require.NoError(t, Write(dir, sample()))
	for _, name := range []string{"results.json", "results.md", "hot-8x16.svg"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	text, err := os.ReadFile(filepath.Join(dir, "results.json"))
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, sample(), back)
}

func TestNumbersForPeople(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123: "0.012", 0.5: "0.50", 1: "1.00", 12.34: "12.3", 99.96: "100.0", 870.4: "870", 1202798: "1,202,798",
	} {
		assert.Equal(t, want, count(v))
	}
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1500: "1.50 µs", 23 * time.Millisecond: "23.0 ms", 1234 * time.Millisecond: "1.23 s",
	} {
		assert.Equal(t, want, span(d))
	}
}

func TestBatchesAreComparedWithOneRowAndWithOneOrderPerHold(t *testing.T) {
	table := Table{Scenario: "sale-postgres-4x64", Link: load.Loopback, Sale: true, Rows: []Row{
		row("batch-64", contender.Subject, round(30_000, time.Millisecond)),
		row(contender.Guard, contender.Subject, round(2000, 20*time.Millisecond)),
		row("statement", contender.Rival, round(3000, 20*time.Millisecond)),
		row(contender.ManyRows, contender.Rival, round(6000, 20*time.Millisecond)),
	}}
	got := Judge([]Table{table})
	require.Len(t, got, 3)
	for i, want := range []float64{10, 15, 0.05} {
		assert.InDelta(t, want, got[i].Got, 1e-9)
		assert.True(t, got[i].Met)
	}
	table.Rows = table.Rows[:1]
	assert.Empty(t, Judge([]Table{table}), "nothing to compare with")
}

func TestBooksThatAreWrongAreShown(t *testing.T) {
	r := NewRow(contender.Contender{Name: "liar"}, []load.Round{{Figures: load.Figures{Violations: 2}}})
	text := Markdown(Report{Tables: []Table{{Sale: true, Rows: []Row{r}}}})
	assert.Contains(t, text, "pieces amiss")
	assert.Contains(t, text, "**liar: 2 pieces were sold twice")
}
