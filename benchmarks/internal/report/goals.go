package report

import (
	"slices"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

// goal is a target of wllock in a table: at least Want, or at most.
type goal struct {
	Scenario string
	Link     load.Link
	What     string
	AtMost   bool
	Want     float64
	got      func(t Table) (float64, bool)
}

// Verdict is a goal and what was measured.
type Verdict struct {
	Scenario string    `json:"scenario"`
	Link     load.Link `json:"link"`
	What     string    `json:"what"`
	AtMost   bool      `json:"at_most"`
	Want     float64   `json:"want"`
	Got      float64   `json:"got"`
	Met      bool      `json:"met"`
}

func (v Verdict) bound() string {
	if v.AtMost {
		return "at most"
	}
	return "at least"
}

var goals = slices.Concat(fixed, overServices(), tenureGains(), batchGains, permitShares)

var fixed = []goal{
	{"hot-1x64", load.Loopback, "times the best rival's ops/s", false, 100, opsToRival},
	{"hot-1x64", load.Loopback, "commands per operation", true, 0.02, commands},
	{"hot-1x64", load.Loopback, "Jain over goroutines", false, 0.99, jainGoroutines},
	{"hot-1x64", load.Loopback, "p99, times the lowest rival's p99", true, 1, p99ToRivals},
	{"hot-8x16", load.Loopback, "times the best rival's ops/s", false, 40, opsToRival},
	{"hot-8x16", load.Loopback, "commands per operation", true, 0.05, commands},
	{"hot-8x16", load.Loopback, "Jain over instances", false, 0.98, jainInstances},
	{"hot-8x16", load.Loopback, "Jain over goroutines", false, 0.95, jainGoroutines},
	{"hot-8x16", load.Loopback, "p99.9, times the lowest rival's p99", true, 1, p999ToRivals},
	{"hot-8x16", load.Delayed, "times the best rival's ops/s", false, 60, opsToRival},
	{"work-4x32", load.Delayed, "times the ideal's ops/s", false, 0.9, opsToLimit},
	{"every-turn-8x16", load.Delayed, "turns per round trip", false, 0.9, opsToLimit},
	{"every-turn-8x16", load.Delayed, "times the best rival's ops/s", false, 1.2, opsToRival},
	{"every-turn-8x16", load.Delayed, "Jain over instances", false, 0.99, jainInstances},
	{"free-1", load.Loopback, "p50, times PING's", true, 1.4, p50ToLimit},
	{"free-1", load.Loopback, "times the best rival's ops/s", false, 1.3, opsToRival},
	{"free-1", load.Delayed, "p50, times PING's", true, 1.1, p50ToLimit},
	{"free-1", load.Delayed, "times the best rival's ops/s", false, 1.8, opsToRival},
	{"own-64", load.Loopback, "times the best rival's ops/s", false, 1.3, opsToRival},
	{"own-64", load.Loopback, "p99, times the lowest rival's p99", true, 1, p99ToRivals},
	{"linger", load.Loopback, "commands per operation", true, 0.001, commands},
	{"alternate", load.Delayed, "hand-over p50 in round trips", true, 1.2, handOverToLimit},
	{"redlock-8x16", load.Loopback, "times the best rival's ops/s", false, 40, opsToRival},
	{"redlock-8x16", load.Loopback, "Jain over instances", false, 0.98, jainInstances},
	{"redlock-1x1", load.Loopback, "times the best rival's ops/s", false, 1, opsToRival},
	{"zookeeper-8x16", load.Loopback, "times the best rival's ops/s", false, 40, opsToRival},
	{"zookeeper-8x16", load.Loopback, "Jain over instances", false, 0.98, jainInstances},
	{"zookeeper-1x1", load.Loopback, "times the best rival's ops/s", false, 1, opsToRival},
	{"zookeeper-readers", load.Loopback, "times the best rival's ops/s", false, 1, opsToRival},
	{"backends-8x16", load.Loopback, "lowest Jain over instances", false, 0.98, lowestJain},
}

// overServices are the goals of locks in services that are there for other purposes, over what their users would take otherwise.
func overServices() []goal {
	var all []goal
	for _, g := range []string{"mysql", "postgres", "sqlite", "etcd"} {
		all = append(all,
			goal{g + "-1x1", load.Loopback, "p50, times that of one plain write", true, 1.3, p50ToLimit},
			goal{g + "-8x16", load.Loopback, "times its ops/s without tenures", false, tenureGain, gain("wllock")},
			goal{g + "-8x16", load.Loopback, "Jain over instances", false, 0.9, jainInstances})
		if g != "sqlite" { // whose rivals take the lock within this process, and whoever is fastest has it again and again
			all = append(all, goal{g + "-8x16", load.Loopback, "times the best rival's ops/s", false, 10, opsToRival})
		}
	}
	return all
}

// tenureGains are the goals of the backends' table.
func tenureGains() []goal {
	var all []goal
	for _, name := range []string{
		"memory", "redis", "redlock", "redlock+f", "zookeeper", "postgres", "mariadb", "sqlite", "etcd", "memcached",
	} {
		all = append(all, goal{"backends-8x16", load.Loopback, name + ", times its ops/s without tenures", false, tenureGain, gain(name)})
	}
	return all
}

// tenureGain is how many times more operations tenures are to serve on a hot key.
const tenureGain = 20

// gain compares a contender with the same one without tenures.
func gain(name string) func(Table) (float64, bool) {
	return func(t Table) (float64, bool) {
		row, ok := t.named(name)
		base, okBase := t.named(name + contender.EveryTurn)
		return ratio(ops(row.Total), ok, ops(base.Total), okBase)
	}
}

// lowestJain is that of the contender that shared most unevenly between its instances.
func lowestJain(t Table) (float64, bool) {
	lowest := 1.0
	for _, r := range t.Rows {
		lowest = min(lowest, r.Total.JainInstances)
	}
	return lowest, len(t.Rows) > 0
}

// Judge compares the tables with the goals. It omits goals without a table or a contender to compare with.
func Judge(tables []Table) []Verdict {
	var verdicts []Verdict
	for _, g := range goals {
		for _, t := range tables {
			if t.Scenario != g.Scenario || t.Link != g.Link {
				continue
			}
			if got, ok := g.got(t); ok {
				met := got >= g.Want
				if g.AtMost {
					met = got <= g.Want
				}
				verdicts = append(verdicts, Verdict{g.Scenario, g.Link, g.What, g.AtMost, g.Want, got, met})
			}
		}
	}
	return verdicts
}

// ours applies f to wllock's row.
func ours(t Table, f func(Total) float64) (float64, bool) {
	rows := t.find(contender.Subject)
	if len(rows) == 0 || rows[0].Total.OpsPerSecond.Median == 0 {
		return 0, false
	}
	return f(rows[0].Total), true
}

func commands(t Table) (float64, bool) {
	return ours(t, func(s Total) float64 { return s.CommandsPerOp })
}

func jainGoroutines(t Table) (float64, bool) {
	return ours(t, func(s Total) float64 { return s.JainGoroutines })
}

func jainInstances(t Table) (float64, bool) {
	return ours(t, func(s Total) float64 { return s.JainInstances })
}

func ops(s Total) float64  { return s.OpsPerSecond.Median }
func p50(s Total) float64  { return float64(s.Latency.P50) }
func p99(s Total) float64  { return float64(s.Latency.P99) }
func p999(s Total) float64 { return float64(s.Latency.P999) }

// ratio is a over b, if there are both.
func ratio(a float64, okA bool, b float64, okB bool) (float64, bool) {
	if !okA || !okB || b == 0 {
		return 0, false
	}
	return a / b, true
}

func opsToRival(t Table) (float64, bool) {
	own, okOwn := ours(t, ops)
	best, ok := t.bestRival()
	return ratio(own, okOwn, ops(best.Total), ok)
}

func limit(t Table, f func(Total) float64) (float64, bool) {
	rows := t.find(contender.Limit)
	if len(rows) == 0 {
		return 0, false
	}
	return f(rows[0].Total), true
}

func toLimit(t Table, f func(Total) float64) (float64, bool) {
	own, okOwn := ours(t, f)
	bound, ok := limit(t, f)
	return ratio(own, okOwn, bound, ok)
}

func opsToLimit(t Table) (float64, bool) { return toLimit(t, ops) }
func p50ToLimit(t Table) (float64, bool) { return toLimit(t, p50) }

// lowestP99 is that of the rivals, each taken by itself.
func lowestP99(t Table) (float64, bool) {
	lowest, found := time.Duration(0), false
	for _, r := range t.find(contender.Rival) {
		if v := r.Total.Latency.P99; v > 0 && (!found || v < lowest) {
			lowest, found = v, true
		}
	}
	return float64(lowest), found
}

func p99ToRivals(t Table) (float64, bool) {
	own, okOwn := ours(t, p99)
	lowest, ok := lowestP99(t)
	return ratio(own, okOwn, lowest, ok)
}

func p999ToRivals(t Table) (float64, bool) {
	own, okOwn := ours(t, p999)
	lowest, ok := lowestP99(t)
	return ratio(own, okOwn, lowest, ok)
}

func handOverToLimit(t Table) (float64, bool) {
	own, okOwn := ours(t, func(s Total) float64 {
		if s.HandOver == nil {
			return 0
		}
		return float64(s.HandOver.P50)
	})
	bound, ok := limit(t, p50)
	return ratio(own, okOwn, bound, ok)
}
