package sale

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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

// column is a title, and the text of a report below it.
type column struct {
	title string
	cell  func(Report) string
}

// shown is a column of values.
func shown[T any](title, format string, value func(Report) T) column {
	return column{title, func(r Report) string { return fmt.Sprintf(format, value(r)) }}
}

// ifLocked shows a dash for a way without a lock.
func ifLocked(c column) column {
	return column{c.title, func(r Report) string {
		if !r.way.Locked {
			return "-"
		}
		return c.cell(r)
	}}
}

var (
	way       = shown("round", "%s", func(r Report) string { return r.Round })
	sold      = shown("sold", "%d", func(r Report) int { return r.Sold })
	soldOut   = shown("sold out", "%d", func(r Report) int { return r.SoldOut })
	refused   = shown("refused", "%d", Report.turnedAway)
	failed    = shown("failed", "%d", func(r Report) int { return r.Failed })
	perSecond = shown("orders/s", "%.0f", func(r Report) float64 { return r.OrdersPerSecond })
	perOrder  = shown("per order", "%.2f", func(r Report) float64 { return r.RequestsPerOrder })

	roundColumns = []column{
		way, sold, shown("oversold", "%d", func(r Report) int { return r.Oversold }), soldOut, refused, failed, perSecond,
		ifLocked(shown("requests", "%d", func(r Report) int64 { return r.Requests })), ifLocked(perOrder),
		ifLocked(shown("p50 wait", "%.1f ms", func(r Report) float64 { return r.P50Wait })),
		ifLocked(shown("p99 wait", "%.1f ms", func(r Report) float64 { return r.P99Wait })),
	}
	modeColumns = []column{
		{"mode", way.cell}, shown("pool", "%d", func(r Report) int { return r.Pool }), sold,
		shown("oversold", "%d", func(r Report) int { return r.Twice }), soldOut, refused, failed, perSecond,
		shown("p50", "%.0f ms", func(r Report) float64 { return r.P50 }),
		shown("p99", "%.0f ms", func(r Report) float64 { return r.P99 }),
		shown("others", "%.0f ms", func(r Report) float64 { return r.OthersP99 }),
		shown("statements", "%.1f", func(r Report) float64 { return r.Statements }),
		ifLocked(column{"requests", perOrder.cell}),
	}
	cpuColumn = column{"db cpu", func(r Report) string {
		if r.CPU == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f ms", *r.CPU)
	}}
)

// printTable writes the reports in columns, the first aligned to the left.
func printTable(w io.Writer, columns []column, reports []Report, legend string) {
	lines := make([]strings.Builder, len(reports)+1)
	for i, c := range columns {
		cells := []string{c.title}
		for _, r := range reports {
			cells = append(cells, c.cell(r))
		}
		width := 0
		for _, cell := range cells {
			width = max(width, utf8.RuneCountInString(cell))
		}
		for line, cell := range cells {
			padding := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if i == 0 {
				lines[line].WriteString(cell + padding)
			} else {
				lines[line].WriteString("  " + padding + cell)
			}
		}
	}
	for i := range lines {
		fmt.Fprintln(w, strings.TrimRight(lines[i].String(), " "))
	}
	fmt.Fprint(w, legend)
}
