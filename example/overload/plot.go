package main

import (
	"fmt"
	"strings"
)

const (
	plotTop = 44
	plotRow = 44
	barWide = 180 // of the longest bar
)

const plotHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1060 %d" font-family="sans-serif" font-size="14">
<title>Goodput, p99 and memory by threshold, at %d times the capacity, one by one and in batches</title>
<rect width="100%%" height="100%%" fill="white"/>
<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="white"/><rect width="2" height="6" fill="black"/></pattern></defs>
<text x="100" y="28" text-anchor="end">threshold</text>
`

// panel is a column of the plot: bars with their numbers.
type panel struct {
	title string
	x     int
	fill  string
	value func(p *point) (v float64, text string)
	tick  func(p *point) float64 // where a line across the bar is; nil: nowhere
}

func panels(l load) []panel {
	return []panel{
		{"goodput, orders per second", 120, "#444", func(p *point) (float64, string) {
			return float64(p.good), fmt.Sprintf("%.0f", l.perSecond(p.good))
		}, nil},
		{"p99 of the accepted, client", 420, "url(#stripes)", func(p *point) (float64, string) {
			if p.good == 0 {
				return 0, "none"
			}
			d := p.client.quantile(.99)
			return d.Seconds(), ms(d) + " ms"
		}, func(p *point) float64 { return p.bound().Seconds() }},
		{"memory, last third", 740, "white", func(p *point) (float64, string) {
			m := p.memory.rss
			if m[1] == 0 {
				m = p.memory.heap
			}
			return m[1], fmt.Sprintf("%.0f MB (%+.0f)", m[1]/1e6, (m[1]-m[0])/1e6)
		}, nil},
	}
}

// plot draws the bars dark, striped and hollow, each with its number: no meaning depends on colour.
func plot(l load, points []point) string {
	var b strings.Builder
	foot := plotTop + plotRow*len(points)
	fmt.Fprintf(&b, plotHead, foot+34, l.times)
	for i := range points {
		fmt.Fprintf(&b, `<text x="100" y="%d" text-anchor="end">%s</text>`+"\n", plotTop+plotRow*i+20, points[i].trial)
	}
	for _, c := range panels(l) {
		c.draw(&b, points)
	}
	fmt.Fprintf(&b, `<text x="420" y="%d" font-size="12">line: (holds in line + 1) × mean hold</text>`+"\n", foot+18)
	fmt.Fprintf(&b, `<text x="740" y="%d" font-size="12">in brackets: more than in the first third</text>`+"\n", foot+18)
	return b.String() + "</svg>\n"
}

func (c *panel) draw(b *strings.Builder, points []point) {
	fmt.Fprintf(b, `<text x="%d" y="28" font-weight="bold">%s</text>`+"\n", c.x, c.title)
	var longest float64
	for i := range points {
		v, _ := c.value(&points[i])
		longest = max(longest, v)
	}
	for i := range points {
		y := plotTop + plotRow*i
		v, text := c.value(&points[i])
		wide := barWide * v / max(longest, 1e-9)
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="28" fill="%s" stroke="black"/>`+"\n", c.x, y, wide, c.fill)
		after := wide
		if c.tick != nil && c.tick(&points[i]) > 0 {
			at := barWide * c.tick(&points[i]) / max(longest, 1e-9)
			after = max(after, at)
			fmt.Fprintf(b, `<path d="M%.1f %d v36" stroke="black" stroke-width="3"/>`+"\n", float64(c.x)+at, y-4)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", float64(c.x)+after+8, y+20, text)
	}
}
