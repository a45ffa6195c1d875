package report

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
)

// Places in a plot, in pixels: names on the left, bars of operations per second, and ranges of latency on the right.
const (
	plotWidth = 960
	rowHeight = 24
	blockHead = 34
	plotHead  = 64
	plotFoot  = 52
	barLeft   = 140.0
	barWidth  = 310.0
	rangeLeft = 540.0
	rangeSize = 320.0
)

// SVG plots the tables of one scenario. It is readable without colour: wllock's bar is full, rivals' are hatched,
// limits' are outlined, and every value is written beside its mark.
func SVG(tables []Table) string {
	height := plotHead + plotFoot
	var rates, latencies []float64
	for _, t := range tables {
		height += blockHead + len(t.Rows)*rowHeight
		for _, r := range t.Rows {
			rates, latencies = append(rates, ops(r.Total)), append(latencies, p50(r.Total), p99(r.Total), p999(r.Total))
		}
	}
	p := plot{ops: newAxis(rates, barLeft, barWidth, false), latency: newAxis(latencies, rangeLeft, rangeSize, true), bottom: height - plotFoot}
	p.open(tables[0].Title, height)
	p.grid(p.ops, count)
	p.grid(p.latency, func(v float64) string { return shortTick.Replace(span(time.Duration(v + 0.5))) })
	y := plotHead
	for _, t := range tables {
		y = p.block(t, y)
	}
	p.legend()
	p.add("</svg>")
	return p.b.String()
}

// shortTick removes the decimals of a power of ten.
var shortTick = strings.NewReplacer(".00 ", " ", ".0 ", " ")

type plot struct {
	b       strings.Builder
	ops     axis
	latency axis
	bottom  int
}

func (p *plot) add(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *plot) text(x, y float64, anchor, style, s string) {
	p.add(`<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, style, html.EscapeString(s))
}

const (
	bold  = ` font-weight="bold"`
	small = ` font-size="10" fill="#555"`
)

func (p *plot) open(title string, height int) {
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#111">`,
		plotWidth, height, plotWidth, height)
	p.add(`<title>%s</title>`, html.EscapeString(title))
	p.add(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="6" height="6" fill="#fff"/><rect width="2.4" height="6" fill="#555"/></pattern></defs>`)
	p.add(`<rect width="%d" height="%d" fill="#fff"/>`, plotWidth, height)
	p.text(16, 24, "start", ` font-size="16"`+bold, title)
	p.text(barLeft, 46, "start", bold, "operations per second"+scale(p.ops))
	p.text(rangeLeft, 46, "start", bold, "latency of a call"+scale(p.latency))
}

func scale(a axis) string {
	if a.log {
		return ", log scale"
	}
	return ""
}

func (p *plot) grid(a axis, label func(float64) string) {
	for _, v := range a.ticks() {
		x := a.place(v)
		p.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ccc"/>`, x, plotHead, x, p.bottom)
		p.text(x, float64(p.bottom+14), "middle", small, label(v))
	}
}

// block draws a table and returns where the next one begins.
func (p *plot) block(t Table, y int) int {
	p.text(16, float64(y+22), "start", bold, linkName(t.Link))
	y += blockHead
	for _, r := range t.Rows {
		p.row(r, float64(y))
		y += rowHeight
	}
	return y
}

func (p *plot) row(r Row, y float64) {
	style := ""
	if r.Role == contender.Subject {
		style = bold
	}
	p.text(barLeft-8, y+15, "end", style, r.Contender)
	v := r.Total.OpsPerSecond.Median
	end := p.ops.place(v)
	p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="14" %s/>`, barLeft, y+4, max(end-barLeft, 1), fill(r.Role))
	p.text(end+5, y+15, "start", style+halo, count(v))
	if r.Total.Latency.Count > 0 {
		p.latencyRange(r.Total, y+11)
	}
}

// halo keeps a label readable on the lines of the grid.
const halo = ` stroke="#fff" stroke-width="3" paint-order="stroke"`

func fill(role contender.Role) string {
	switch role {
	case contender.Subject:
		return `fill="#111" stroke="#111"`
	case contender.Rival:
		return `fill="url(#hatch)" stroke="#555"`
	default:
		return `fill="#fff" stroke="#111" stroke-dasharray="4 2"`
	}
}

// latencyRange draws a line from p50 to p99.9: a dot, a bar at p99, a diamond.
func (p *plot) latencyRange(t Total, y float64) {
	low, mid, high := p.latency.place(p50(t)), p.latency.place(p99(t)), p.latency.place(p999(t))
	p.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#111" stroke-width="1.5"/>`, low, y, high, y)
	p.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#111" stroke-width="2.5"/>`, mid, y-6, mid, y+6)
	p.add(`<circle cx="%.1f" cy="%.1f" r="4" fill="#fff" stroke="#111" stroke-width="1.5"/>`, low, y)
	p.add(`<path d="M%.1f %.1f l4 -4 l4 4 l-4 4 z" fill="#111"/>`, high-4, y)
	p.text(high+9, y+4, "start", ` font-size="11"`+halo, span(t.Latency.P99))
}

func (p *plot) legend() {
	y := float64(p.bottom + 38)
	x := barLeft
	for _, e := range []struct {
		role contender.Role
		name string
	}{{contender.Subject, "wllock"}, {contender.Rival, "others"}, {contender.Limit, "limit, no lock"}} {
		p.add(`<rect x="%.1f" y="%.1f" width="20" height="12" %s/>`, x, y-10, fill(e.role))
		p.text(x+26, y, "start", "", e.name)
		x += 110
	}
	p.text(rangeLeft, y, "start", "", "○ p50   | p99 (the figure)   ◆ p99.9")
}
