package report

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
)

// plotText is a plot with names on the left, bars of operations per second, and ranges of latency on the right: a dot at p50, a bar at
// p99, a diamond at p99.9. It is readable without colour, and every value is written beside its mark.
//
//go:embed plot.svg
var plotText string

var plotTemplate = template.Must(template.New("plot").Parse(plotText))

// plot is what the template fills in.
type plot struct {
	Title  string
	Height int
	Bottom int // of the lines
	Axes   []axis
	Lines  []line
	Fills  []string // by role: wllock's bar is full, rivals' are hatched, limits' and floors' are outlined
}

// line is a row, or names the link of those that follow.
type line struct {
	Y                  int
	Link               string
	Name, Weight, Fill string
	Rate               string
	Bar, End           pixels
	Served             bool
	P50, P99, P999     pixels
	Label              string // of p99
}

// Heights of what stands above each other, in pixels.
const (
	plotHead  = 64
	linkHead  = 34
	rowHeight = 24
	plotFoot  = 52
)

// SVG plots the tables of one scenario.
func SVG(tables []Table) string {
	var rates, latencies []float64
	for _, t := range tables {
		for _, r := range t.Rows {
			rates, latencies = append(rates, ops(r.Total)), append(latencies, p50(r.Total), p99(r.Total), p999(r.Total))
		}
	}
	rate := newAxis("operations per second", 140, 310, rates, false, count)
	latency := newAxis("latency of a call", 540, 320, latencies, true, func(v float64) string {
		return powerOfTen.Replace(span(time.Duration(v + 0.5)))
	})
	p := plot{Title: tables[0].Title, Bottom: plotHead, Axes: []axis{rate, latency}, Fills: []string{
		contender.Subject: `fill="#111" stroke="#111"`,
		contender.Rival:   `fill="url(#hatch)" stroke="#555"`,
		contender.Limit:   `fill="#fff" stroke="#111" stroke-dasharray="4 2"`,
		contender.Floor:   `fill="#fff" stroke="#111"`,
	}}
	for _, t := range tables {
		p.Lines = append(p.Lines, line{Y: p.Bottom, Link: t.Link.Title()})
		p.Bottom += linkHead
		for _, r := range t.Rows {
			l := line{
				Y: p.Bottom, Name: r.Contender, Fill: p.Fills[r.Role], Rate: count(ops(r.Total)), End: rate.place(ops(r.Total)),
				Served: r.Total.Latency.Count > 0, Label: span(r.Total.Latency.P99),
				P50: latency.place(p50(r.Total)), P99: latency.place(p99(r.Total)), P999: latency.place(p999(r.Total)),
			}
			if l.Bar = max(l.End-rate.Left, 1); r.Role == contender.Subject {
				l.Weight = ` font-weight="bold"`
			}
			p.Lines = append(p.Lines, l)
			p.Bottom += rowHeight
		}
	}
	p.Height = p.Bottom + plotFoot
	return fill(plotTemplate, p)
}

// powerOfTen removes its decimals.
var powerOfTen = strings.NewReplacer(".00 ", " ", ".0 ", " ")

// logFrom is the ratio of largest to smallest from which an axis is logarithmic.
const logFrom = 20

// axis maps values to places.
type axis struct {
	Name        string
	Left, width pixels
	Log         bool
	Ticks       []tick
	from, to    float64 // values at the ends
}

// tick is a value with a line.
type tick struct {
	X     pixels
	Label string
}

// pixels are written to a tenth.
type pixels float64

func (p pixels) String() string { return strconv.FormatFloat(float64(p), 'f', 1, 64) }

// newAxis makes an axis that holds all positive values. A linear one begins at 0 and has a line at each quarter, a logarithmic one at
// powers of ten.
func newAxis(name string, left, width pixels, values []float64, alwaysLog bool, label func(float64) string) axis {
	lowest, highest := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	if highest == 0 {
		lowest, highest = 1, 1
	}
	a := axis{Name: name, Left: left, width: width, Log: alwaysLog || highest/lowest > logFrom, to: highest}
	marks := []float64{0, highest / 4, highest / 2, highest * 3 / 4, highest}
	if a.Log {
		first := math.Floor(math.Log10(lowest * 0.7)) // room for the smallest bar
		last := max(math.Ceil(math.Log10(highest)), first+1)
		a.from, a.to, marks = math.Pow(10, first), math.Pow(10, last), nil
		for power := first; power <= last; power++ {
			marks = append(marks, math.Pow(10, power))
		}
	}
	for _, v := range marks {
		a.Ticks = append(a.Ticks, tick{a.place(v), label(v)})
	}
	return a
}

func (a axis) place(v float64) pixels {
	if a.Log {
		return a.Left + a.width*pixels(math.Log(max(v, a.from)/a.from)/math.Log(a.to/a.from))
	}
	return a.Left + a.width*pixels(v/a.to)
}
