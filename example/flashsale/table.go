package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// legend explains the columns, because a table is often pasted without its program.
const legend = `
sold, oversold: rows in the database. sold out: admitted, nothing left. refused: not admitted ("try later").
orders/s: until the last piece was sold. requests: to the lock service, without renewals and heartbeats;
per order: per piece sold. wait: from arrival to admission, of admitted buyers.
`

// column is a title and the text of a report below it.
type column[R any] struct {
	title string
	cell  func(R) string
}

var columns = []column[report]{
	{"round", func(r report) string { return r.Round }},
	{"sold", func(r report) string { return fmt.Sprint(r.Sold) }},
	{"oversold", func(r report) string { return fmt.Sprint(r.Oversold) }},
	{"sold out", func(r report) string { return fmt.Sprint(r.SoldOut) }},
	{"refused", func(r report) string { return fmt.Sprint(r.Refused) }},
	{"failed", func(r report) string { return fmt.Sprint(r.Failed) }},
	{"orders/s", func(r report) string { return fmt.Sprintf("%.0f", r.OrdersPerSecond) }},
	{"requests", func(r report) string { return r.ifLocked("%d", r.Requests) }},
	{"per order", func(r report) string { return r.ifLocked("%.2f", r.RequestsPerOrder) }},
	{"p50 wait", func(r report) string { return r.ifLocked("%.1f ms", r.P50Wait) }},
	{"p99 wait", func(r report) string { return r.ifLocked("%.1f ms", r.P99Wait) }},
}

// ifLocked shows a dash in a round without a lock.
func (r report) ifLocked(format string, value any) string {
	if !r.locked {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

// printTable writes the reports in columns, the first aligned to the left.
func printTable[R any](w io.Writer, columns []column[R], reports []R, legend string) {
	lines := make([]strings.Builder, len(reports)+1)
	for i, c := range columns {
		cells := []string{c.title}
		for _, r := range reports {
			cells = append(cells, c.cell(r))
		}
		width := widest(cells)
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

func widest(cells []string) (width int) {
	for _, c := range cells {
		width = max(width, utf8.RuneCountInString(c))
	}
	return width
}
