package sale

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// legend explains the columns, because a table is often pasted without its program.
const legend = `
sold, oversold: rows in the database. sold out: admitted, nothing left. refused: told to try
later, not admitted or because the lock service was away. failed: an error, or no answer.
orders/s: until the last piece was sold. requests: to the lock service, without renewals and heartbeats;
per order: per piece sold. wait: from arrival to admission, of admitted buyers.
`

const modeLegend = `
pool: connections of each process to the database, the best of those tried (most orders/s; within a tenth: least "others").
sold: orders in the database. oversold: those for which no piece left the stock. sold out: came too late. refused: "try
later". failed: an error, or no answer. orders/s: until the last piece was sold. p50, p99: from arrival to "it is yours". others: p99 of visitors that read
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

// column is a title, and what a report has below it; nil is a dash.
type column struct {
	title, format string
	value         func(Report) any
}

func (c column) cell(r Report) string {
	if v := c.value(r); v != nil {
		return fmt.Sprintf(c.format, v)
	}
	return "-"
}

// ifLocked has nothing for a way without a lock.
func ifLocked(value func(Report) any) func(Report) any {
	return func(r Report) any {
		if !r.way.Locked {
			return nil
		}
		return value(r)
	}
}

var (
	sold      = column{"sold", "%d", func(r Report) any { return r.Sold }}
	soldOut   = column{"sold out", "%d", func(r Report) any { return r.SoldOut }}
	refused   = column{"refused", "%d", func(r Report) any { return r.turnedAway() }}
	failed    = column{"failed", "%d", func(r Report) any { return r.Failed }}
	perSecond = column{"orders/s", "%.0f", func(r Report) any { return r.OrdersPerSecond }}
	perOrder  = ifLocked(func(r Report) any { return r.RequestsPerOrder })

	roundColumns = []column{
		{"round", "%s", func(r Report) any { return r.Round }}, sold,
		{"oversold", "%d", func(r Report) any { return r.Oversold }}, soldOut, refused, failed, perSecond,
		{"requests", "%d", ifLocked(func(r Report) any { return r.Requests })}, {"per order", "%.2f", perOrder},
		{"p50 wait", "%.1f ms", ifLocked(func(r Report) any { return r.P50Wait })},
		{"p99 wait", "%.1f ms", ifLocked(func(r Report) any { return r.P99Wait })},
	}
	modeColumns = []column{
		{"mode", "%s", func(r Report) any { return r.Round }}, {"pool", "%d", func(r Report) any { return r.Pool }}, sold,
		{"oversold", "%d", func(r Report) any { return r.Twice }}, soldOut, refused, failed, perSecond,
		{"p50", "%.0f ms", func(r Report) any { return r.P50 }}, {"p99", "%.0f ms", func(r Report) any { return r.P99 }},
		{"others", "%.0f ms", func(r Report) any { return r.OthersP99 }},
		{"statements", "%.1f", func(r Report) any { return r.Statements }}, {"requests", "%.2f", perOrder},
	}
	cpuColumn = column{"db cpu", "%.2f ms", func(r Report) any {
		if r.CPU == nil {
			return nil
		}
		return *r.CPU
	}}
)

func printRounds(w io.Writer, reports []Report, rtt time.Duration) {
	below := legend
	if rtt > 0 {
		below += fmt.Sprintf("Each request to the lock service took %v longer than it does here, as over a network (-rtt).\n", rtt)
	}
	printTable(w, roundColumns, reports, below+"\n"+wrapped(Verdict(reports))+"\n")
}

func printModes(w io.Writer, reports []Report) {
	columns, below := modeColumns, modeLegend
	if slices.ContainsFunc(reports, func(r Report) bool { return r.CPU != nil }) {
		columns, below = append(slices.Clone(columns), cpuColumn), below+"db cpu: of the database's server, per piece sold.\n"
	}
	printTable(w, columns, reports, below+advice)
}

// printTable writes the reports in columns, the first aligned to the left.
func printTable(w io.Writer, columns []column, reports []Report, legend string) {
	lines := make([]string, len(reports)+1)
	for i, c := range columns {
		cells := []string{c.title}
		for _, r := range reports {
			cells = append(cells, c.cell(r))
		}
		width := -len(slices.MaxFunc(cells, func(a, b string) int { return len(a) - len(b) }))
		if i > 0 {
			width = -width
		}
		for line, cell := range cells {
			lines[line] += fmt.Sprintf("%*s  ", width, cell)
		}
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	fmt.Fprint(w, legend)
}
