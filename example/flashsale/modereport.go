package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// modeReport is one line of the table of modes.
type modeReport struct {
	Mode     string `json:"mode"`
	Pool     int    `json:"pool"`
	Sold     int    `json:"sold"`
	Told     int    `json:"told"`     // buyers that were told that they have bought
	Oversold int    `json:"oversold"` // orders for which no piece left the stock; below 0: pieces that left without an order
	Left     int    `json:"left"`     // in stock

	FenceViolations int `json:"fence_violations"`
	SoldOut         int `json:"sold_out"`
	Refused         int `json:"refused"`
	Failed          int `json:"failed"`

	OrdersPerSecond float64  `json:"orders_per_second"`
	P50             float64  `json:"p50_ms"`
	P99             float64  `json:"p99_ms"`
	OthersP99       float64  `json:"others_p99_ms"`
	Statements      float64  `json:"statements_per_order"`
	Requests        float64  `json:"backend_requests_per_order"`
	CPU             *float64 `json:"database_cpu_ms_per_order,omitempty"`
	Failure         string   `json:"failure,omitempty"`

	round round
}

func newModeReport(r round, pool, stock int, a sqlshop.Audit, seen result) modeReport {
	slices.Sort(seen.Answers)
	slices.Sort(seen.Visits)
	rep := modeReport{
		Mode: r.id, Pool: pool, Sold: a.Sold, Told: seen.Bought, Oversold: a.Sold + a.Left - stock, Left: a.Left,
		SoldOut: seen.SoldOut, Refused: seen.Refused, Failed: seen.Failed, Failure: seen.Failure,
		P50: milliseconds(percentile(seen.Answers, 50)), P99: milliseconds(percentile(seen.Answers, 99)),
		OthersP99: milliseconds(percentile(seen.Visits, 99)),
		round:     r,
	}
	if r.fenced {
		rep.FenceViolations = a.OutOfOrder
	}
	if r.shared {
		rep.FenceViolations = a.Fallen
	}
	if a.Sold > 0 && seen.Selling > 0 {
		rep.OrdersPerSecond = float64(a.Sold) / seen.Selling.Seconds()
		rep.Statements = float64(seen.Statements) / float64(a.Sold)
		rep.Requests = float64(seen.Requests) / float64(a.Sold)
	}
	return rep
}

// spent notes the CPU time of the database's server during the sale.
func (r *modeReport) spent(cpu time.Duration) {
	if r.Sold > 0 {
		perOrder := milliseconds(cpu) / float64(r.Sold)
		r.CPU = &perOrder
	}
}

// kept reports whether the database says what the buyers were told, and whether each piece was sold at most once, unless the
// mode promises nothing.
func (r modeReport) kept() bool {
	once := r.Oversold == 0 && r.FenceViolations == 0
	return r.Sold == r.Told && (once || r.round.unsafe)
}

const modeLegend = `
pool: connections of each process to the database, the best of those tried (most orders/s; within a tenth: least "others").
sold: orders in the database. oversold: those for which no piece left the stock. sold out: came too late. refused: "try
later". orders/s: until the last piece was sold. p50, p99: from arrival to "it is yours". others: p99 of visitors that read
another row over the same pools meanwhile. statements: to the database, by all buyers, per piece sold; requests: to the
lock service, per piece sold.
`

// advice is what the table says, whatever the database: see docs/flashsale.md for the figures behind it.
const advice = `
If the decision fits into one statement, write UPDATE ... WHERE qty > 0 and nothing else: it is simple and fast, and cannot
oversell. If an order reads, thinks and then writes, or does more than one database can roll back, take the lock and let
the fence guard the write: those that wait cost no connection, no statement and no retry. Where many want the same row at
the same time, let one transaction serve all that wait: batch.
`

var modeColumns = []column[modeReport]{
	{"mode", func(r modeReport) string { return r.Mode }},
	{"pool", func(r modeReport) string { return fmt.Sprint(r.Pool) }},
	{"sold", func(r modeReport) string { return fmt.Sprint(r.Sold) }},
	{"oversold", func(r modeReport) string { return fmt.Sprint(r.Oversold) }},
	{"sold out", func(r modeReport) string { return fmt.Sprint(r.SoldOut) }},
	{"refused", func(r modeReport) string { return fmt.Sprint(r.Refused) }},
	{"failed", func(r modeReport) string { return fmt.Sprint(r.Failed) }},
	{"orders/s", func(r modeReport) string { return fmt.Sprintf("%.0f", r.OrdersPerSecond) }},
	{"p50", func(r modeReport) string { return fmt.Sprintf("%.0f ms", r.P50) }},
	{"p99", func(r modeReport) string { return fmt.Sprintf("%.0f ms", r.P99) }},
	{"others", func(r modeReport) string { return fmt.Sprintf("%.0f ms", r.OthersP99) }},
	{"statements", func(r modeReport) string { return fmt.Sprintf("%.1f", r.Statements) }},
	{"requests", func(r modeReport) string {
		if !r.round.locked {
			return "-"
		}
		return fmt.Sprintf("%.2f", r.Requests)
	}},
}

var cpuColumn = column[modeReport]{"db cpu", func(r modeReport) string {
	if r.CPU == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", *r.CPU)
}}

// concludeModes prints the best trial of each mode, and returns an exit status that says whether all kept their promise.
func concludeModes(s settings, tried []modeReport, stdout, stderr io.Writer) int {
	reports, status := best(tried), statusOK
	for _, r := range tried {
		if r.Failure != "" {
			fmt.Fprintf(stderr, "flashsale: %s, pool %d: %d failed, the first with: %s\n", r.Mode, r.Pool, r.Failed, r.Failure)
		}
		if !r.kept() {
			fmt.Fprintf(stderr, "flashsale: %s, pool %d, did not keep its promise: %d pieces oversold, %d in stock besides %d orders of %d, "+
				"%d buyers told that they bought, %d fences out of order\n",
				r.Mode, r.Pool, r.Oversold, r.Left, r.Sold, s.Stock, r.Told, r.FenceViolations)
		}
		if r.Failed > 0 || !r.kept() {
			status = statusFailed
		}
	}
	if s.JSON {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(map[string]any{"settings": s, "modes": reports, "tried": tried, "ok": status == statusOK})
		return status
	}
	shown, legend := modeColumns, modeLegend
	if slices.ContainsFunc(reports, func(r modeReport) bool { return r.CPU != nil }) {
		shown, legend = append(slices.Clone(shown), cpuColumn), legend+"db cpu: of the database's server, per piece sold.\n"
	}
	printTable(stdout, shown, reports, legend+advice)
	return status
}
