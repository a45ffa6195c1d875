package sale

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The legends explain the columns, because a table is often pasted without its program. The advice is what the table of the modes says,
// whatever the database: see docs/flashsale.md for the figures behind it.
var (
	//go:embed rounds.txt
	legend string
	//go:embed modes.txt
	modeLegend string
	//go:embed advice.txt
	advice string
)

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
	refused   = column{"refused", "%d", func(r Report) any { return r.Refused + r.Away }}
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

// Verdict is the table of all rounds in one sentence. It says what this run has measured and nothing else, also where wllock is the slower
// one, and compares nothing when buyers failed: what they did not do costs nothing.
func Verdict(reports []Report) string {
	none, one, two, batches := reports[0], reports[1], reports[2], reports[3]
	var failures []string
	for _, r := range []Report{one, two} {
		switch {
		case !r.Once():
			return fmt.Sprintf("Verdict: %s did not keep its promise in this run.", r.Round)
		case r.Failed+r.Away > 0:
			failures = append(failures, r.failures())
		case r.Sold == 0:
			return fmt.Sprintf("Verdict: %s sold nothing, so there is nothing to compare.", r.Round)
		}
	}
	oversale := "oversold nothing this time"
	if none.Oversold > 0 {
		oversale = fmt.Sprintf("sold %d pieces that did not exist", none.Oversold)
	}
	if failures != nil {
		return fmt.Sprintf("Verdict: %s %s; no piece was sold twice under a lock. Not all went well: %s. So the rest does not compare.",
			none.Round, oversale, strings.Join(failures, "; "))
	}
	text := fmt.Sprintf("Verdict: %s %s; %s and %s sold no piece twice, %s", none.Round, oversale, one.Round, two.Round, two.beside(one))
	if !batches.Once() || batches.Failed+batches.Away > 0 || two.OrdersPerSecond == 0 {
		return text + "."
	}
	if ratio := batches.OrdersPerSecond / two.OrdersPerSecond; ratio <= 0.9 || ratio >= 1.1 {
		return text + fmt.Sprintf("; in batches it sold at %s its orders per second.", times(ratio))
	} // otherwise buyers come no faster, as on the page: only their waits differ
	return text + fmt.Sprintf("; in batches it sold as many orders per second, with 99 of 100 waits below %.0f ms.", batches.P99Wait)
}

// failures says what those saw who were neither sold a piece nor told that there is none.
func (r Report) failures() string {
	within, failed := fmt.Sprintf("%.0f ms", r.P99Told), fmt.Sprintf("%s left %d buyers without an answer", r.Round, r.Failed)
	if r.Away == 0 {
		return failed
	}
	if r.P99Told >= 1000 {
		within = fmt.Sprintf("%.1f s", r.P99Told/1000)
	}
	text := fmt.Sprintf("%s told %d buyers to come back later, 99 of 100 within %s", r.Round, r.Refused+r.Away, within)
	if r.Failed > 0 {
		text += ", and " + failed
	}
	return text
}

// beside says what r gains and loses beside another round that sold the same.
func (r Report) beside(other Report) string {
	text := fmt.Sprintf("%s with %d requests to the lock service instead of %d", r.Round, r.Requests, other.Requests)
	if other.OrdersPerSecond > 0 {
		text += fmt.Sprintf(", at %s the orders per second", times(r.OrdersPerSecond/other.OrdersPerSecond))
	}
	if other.P99Wait > 0 {
		text += fmt.Sprintf(", and with 99 of 100 waits below %.0f ms instead of %.0f ms", r.P99Wait, other.P99Wait)
	}
	if r.Refused > 0 {
		text += fmt.Sprintf("; it told %d buyers at once to try later", r.Refused)
	}
	if r.Left > other.Left {
		text += fmt.Sprintf(", and so has %d pieces left (a higher -threshold sells them)", r.Left)
	}
	return text
}

// times is a ratio in as many digits as can be measured.
func times(ratio float64) string {
	format := "%.1f times"
	if ratio >= 10 {
		format = "%.0f times"
	}
	return fmt.Sprintf(format, ratio)
}

const lineWidth = 118 // suits a terminal, and a README

// wrapped breaks a sentence into lines.
func wrapped(text string) string {
	line, lines := "", ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > lineWidth {
			line, lines = "", lines+line+"\n"
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return lines + line
}
