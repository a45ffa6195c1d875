package report

import (
	"math"
	"slices"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// goal is a target of wllock in a table.
type goal struct {
	Scenario string
	Link     load.Link
	What     string
	AtMost   bool
	Want     float64
	got      measure
}

const atLeast, atMost = false, true

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

// Judge compares the tables with the goals. It omits goals without a table or a contender to compare with.
func Judge(tables []Table) (verdicts []Verdict) {
	for _, g := range goals {
		for _, t := range tables {
			if t.Scenario != g.Scenario || t.Link != g.Link {
				continue
			}
			if got := g.got(t); !math.IsNaN(got) {
				met := got >= g.Want && !g.AtMost || got <= g.Want && g.AtMost
				verdicts = append(verdicts, Verdict{g.Scenario, g.Link, g.What, g.AtMost, g.Want, got, met})
			}
		}
	}
	return verdicts
}

// batch is the batch guard with its default size.
var batch = contender.Batched(64)

// tenureGain is how many times more operations tenures are to serve on a hot key.
const tenureGain = 20

var goals = slices.Concat([]goal{
	{"hot-1x64", load.Loopback, "times the best rival's ops/s", atLeast, 100, opsToRival},
	{"hot-1x64", load.Loopback, "commands per operation", atMost, 0.02, ours(commands)},
	{"hot-1x64", load.Loopback, "Jain over goroutines", atLeast, 0.99, ours(jainGoroutines)},
	{"hot-1x64", load.Loopback, "p99, times the lowest rival's p99", atMost, 1, over(ours(p99), lowestP99)},
	{"hot-8x16", load.Loopback, "times the best rival's ops/s", atLeast, 40, opsToRival},
	{"hot-8x16", load.Loopback, "commands per operation", atMost, 0.05, ours(commands)},
	{"hot-8x16", load.Loopback, "Jain over instances", atLeast, 0.98, ours(jainInstances)},
	{"hot-8x16", load.Loopback, "Jain over goroutines", atLeast, 0.95, ours(jainGoroutines)},
	{"hot-8x16", load.Loopback, "p99.9, times the lowest rival's p99", atMost, 1, over(ours(p999), lowestP99)},
	{"hot-8x16", load.Delayed, "times the best rival's ops/s", atLeast, 60, opsToRival},
	{"work-4x32", load.Delayed, "times the ideal's ops/s", atLeast, 0.9, toLimit(ops)},
	{"every-turn-8x16", load.Delayed, "turns per round trip", atLeast, 0.9, toLimit(ops)},
	{"every-turn-8x16", load.Delayed, "times the best rival's ops/s", atLeast, 1.2, opsToRival},
	{"every-turn-8x16", load.Delayed, "Jain over instances", atLeast, 0.99, ours(jainInstances)},
	{"free-1", load.Loopback, "p50, times PING's", atMost, 1.4, toLimit(p50)},
	{"free-1", load.Loopback, "times the best rival's ops/s", atLeast, 1.3, opsToRival},
	{"free-1", load.Delayed, "p50, times PING's", atMost, 1.1, toLimit(p50)},
	{"free-1", load.Delayed, "times the best rival's ops/s", atLeast, 1.8, opsToRival},
	{"own-64", load.Loopback, "times the best rival's ops/s", atLeast, 1.3, opsToRival},
	{"own-64", load.Loopback, "p99, times the lowest rival's p99", atMost, 1, over(ours(p99), lowestP99)},
	{"linger", load.Loopback, "commands per operation", atMost, 0.001, ours(commands)},
	{"alternate", load.Delayed, "hand-over p50 in round trips", atMost, 1.2, over(ours(of(handOvers, p50)), limit(p50))},
	{"redlock-8x16", load.Loopback, "times the best rival's ops/s", atLeast, 40, opsToRival},
	{"redlock-8x16", load.Loopback, "Jain over instances", atLeast, 0.98, ours(jainInstances)},
	{"redlock-1x1", load.Loopback, "times the best rival's ops/s", atLeast, 1, opsToRival},
	{"zookeeper-8x16", load.Loopback, "times the best rival's ops/s", atLeast, 40, opsToRival},
	{"zookeeper-8x16", load.Loopback, "Jain over instances", atLeast, 0.98, ours(jainInstances)},
	{"zookeeper-1x1", load.Loopback, "times the best rival's ops/s", atLeast, 1, opsToRival},
	{"zookeeper-readers", load.Loopback, "times the best rival's ops/s", atLeast, 1, opsToRival},
	{"backends-8x16", load.Loopback, "lowest Jain over instances", atLeast, 0.98, lowestJain},
},
	// Services that are there for other purposes, over what their users would take otherwise.
	overService("mysql"), overService("postgres"), overService("sqlite"), overService("etcd"),
	tenureGains("memory", "redis", "redlock", "redlock+f", "zookeeper", "postgres", "mariadb", "sqlite", "etcd", "memcached"),
	// A batch guard with its default size, beside what sells without our lock, and beside one order in each hold.
	[]goal{
		{"sale-postgres-4x64", load.Loopback, "times the orders/s of the best without a lock of ours", atLeast, 10, toOneRow(batch)},
		{"sale-postgres-4x64", load.Loopback, "times the orders/s of one per hold", atLeast, 12, toGuard(ops)},
		{"sale-postgres-4x64", load.Loopback, "p99, times that of one per hold", atMost, 0.2, toGuard(p99)},
		{"sale-postgres-4x64", load.Delayed, "pipelined, times the orders/s of the best without a lock of ours", atLeast, 2,
			toOneRow(batch + contender.Pipelined)},
		{"sale-postgres-4x64", load.Delayed, "times the orders/s of one per hold", atLeast, 35, toGuard(ops)},
		{"sale-postgres-4x64", load.Delayed, "p99, times that of one per hold", atMost, 0.2, toGuard(p99)},
		{"sale-sqlite-4x64", load.Loopback, "times the orders/s of the best without a lock of ours", atLeast, 10, toOneRow(batch)},
		{"sale-sqlite-4x64", load.Loopback, "times the orders/s of one per hold", atLeast, 12, toGuard(ops)},
		{"batch-work-4x64", load.Loopback, "times the serial limit", atLeast, 40, toLimit(ops)},
		{"lone-postgres", load.Loopback, "p50, times that of one per hold", atMost, 1.1, toGuard(p50)},
		{"lone-postgres", load.Delayed, "p50, times that of one per hold", atMost, 1.1, toGuard(p50)},
		{"lone-sqlite", load.Loopback, "p50, times that of one per hold", atMost, 1.1, toGuard(p50)},
		// Permits do what a semaphore inside one process does: when many wait, and when each caller could have one.
		{"permits-4x64", load.Loopback, "of the limit's ops/s", atLeast, 0.97, toLimit(ops)},
		{"permits-4x2", load.Loopback, "of the limit's ops/s", atLeast, 0.9, toLimit(ops)},
	})

func overService(g string) []goal {
	all := []goal{
		{g + "-1x1", load.Loopback, "p50, times that of one plain write", atMost, 1.3, toLimit(p50)},
		{g + "-8x16", load.Loopback, "times its ops/s without tenures", atLeast, tenureGain, gain("wllock")},
		{g + "-8x16", load.Loopback, "Jain over instances", atLeast, 0.9, ours(jainInstances)},
	}
	if g == "sqlite" { // whose rivals take the lock within this process, and whoever is fastest has it again and again
		return all
	}
	return append(all, goal{g + "-8x16", load.Loopback, "times the best rival's ops/s", atLeast, 10, opsToRival})
}

func tenureGains(backends ...string) (all []goal) {
	for _, name := range backends {
		all = append(all, goal{"backends-8x16", load.Loopback, name + ", times its ops/s without tenures", atLeast, tenureGain, gain(name)})
	}
	return all
}

// measure takes a figure from a table. NaN: there is none.
type measure func(Table) float64

// figure is one of a row.
type figure = func(Total) float64

func ops(s Total) float64            { return s.OpsPerSecond.Median }
func p50(s Total) float64            { return float64(s.Latency.P50) }
func p99(s Total) float64            { return float64(s.Latency.P99) }
func p999(s Total) float64           { return float64(s.Latency.P999) }
func commands(s Total) float64       { return s.CommandsPerOp }
func jainGoroutines(s Total) float64 { return s.JainGoroutines }
func jainInstances(s Total) float64  { return s.JainInstances }

// Only some rows have these.
func handOvers(s Total) *stats.Summary { return s.HandOver }
func waits(s Total) *stats.Summary     { return s.Wait }

// of is a figure of these as if they were the latency.
func of(part func(Total) *stats.Summary, f figure) figure {
	return func(s Total) float64 {
		if part(s) == nil {
			return math.NaN()
		}
		s.Latency = *part(s)
		return f(s)
	}
}

// first is a figure of the first of some rows.
func first(rows []Row, f figure) float64 {
	if len(rows) == 0 {
		return math.NaN()
	}
	return f(rows[0].Total)
}

// ours is a figure of wllock, if it has done anything.
func ours(f figure) measure {
	return func(t Table) float64 {
		rows := t.of(contender.Subject)
		if first(rows, ops) == 0 {
			return math.NaN()
		}
		return first(rows, f)
	}
}

func limit(f figure) measure {
	return func(t Table) float64 { return first(t.of(contender.Limit), f) }
}

func named(name string, f figure) measure {
	return func(t Table) float64 { return first(t.named(name), f) }
}

// over is a ratio, if there are both figures and the second is not 0.
func over(a, b measure) measure {
	return func(t Table) float64 {
		if by := b(t); by != 0 {
			return a(t) / by
		}
		return math.NaN()
	}
}

var opsToRival = over(ours(ops), func(t Table) float64 { return first(t.bestRival(), ops) })

func toLimit(f figure) measure { return over(ours(f), limit(f)) }

// toGuard compares with the guard that serves one caller in each hold.
func toGuard(f figure) measure { return over(ours(f), named(contender.Guard, f)) }

// gain compares a contender with the same one without tenures.
func gain(name string) measure { return over(named(name, ops), named(name+contender.EveryTurn, ops)) }

// toOneRow compares a contender with the best that sells from one row without our lock, in as few round trips as it can. A stock in many
// rows is another shop.
func toOneRow(name string) measure {
	return over(named(name, ops), func(t Table) float64 {
		t.Rows = t.where(func(r Row) bool { return r.Contender != contender.ManyRows })
		return first(t.bestRival(), ops)
	})
}

// lowestP99 is that of the rivals, each taken by itself, that have done anything.
func lowestP99(t Table) float64 {
	return lowest(t.where(func(r Row) bool { return r.Role == contender.Rival && p99(r.Total) > 0 }), p99)
}

// lowestJain is that of the contender that shared most unevenly between its instances.
func lowestJain(t Table) float64 { return lowest(t.Rows, jainInstances) }

func lowest(rows []Row, f figure) float64 {
	least := first(rows, f)
	for _, r := range rows {
		least = min(least, f(r.Total))
	}
	return least
}
