package history

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
)

// Sizes of a picture.
const (
	wide, left, right = 1200.0, 150.0, 1100.0 // of all, and where the time line begins and ends
	top, row, bar     = 80.0, 36.0, 14.0
	mostBeside        = 40 // calls that are drawn beside those of the violation
)

const style = `<style>text{font:12px sans-serif;fill:#222}.small{font-size:10px}.title{font-size:15px;font-weight:bold;fill:#c0392b}
.grid{fill:#ddd}.wait{fill:#999}.sure{fill:#4a7ab5}.unsure{fill:#b9cbe2}.other{opacity:.5}.bad .sure{fill:#c0392b}.bad .unsure{fill:#e8b4ae}
.fault{fill:#e8c95a;opacity:.5}.kill,.data{fill:#000}</style>`

// picture is an SVG with a time line.
type picture struct {
	strings.Builder
	from, until int64
	fences      []uint64 // in their order, from 1 on
}

// Draw writes a violation as an SVG, with a row for each caller. A line is a call that waits, and a bar one that is inside. It is dark while the
// caller is certain of its lease, and has a number that tells the order of the fences. What breaks the rule is red, stands first, and has
// what it read and wrote. Below are other calls for the key. Faults are yellow, and a kill is black.
func (h *History) Draw(to io.Writer, v Violation) error {
	p := &picture{from: forever}
	for _, c := range v.Calls {
		p.from, p.until = min(p.from, c.Asked), max(p.until, c.end())
	}
	margin := max((p.until-p.from)/20, int64(time.Millisecond))
	p.from, p.until = p.from-margin, p.until+margin
	var beside []*Call
	for _, c := range h.byKey()[v.Key] {
		if len(beside) < mostBeside && c.Held > 0 && c.Held <= p.until && c.end() >= p.from && !slices.Contains(v.Calls, c) {
			beside = append(beside, c)
		}
	}
	calls, rows := slices.Concat(beside, v.Calls), p.rows(v.Calls)
	rows = append(rows, slices.DeleteFunc(p.rows(beside), func(name string) bool { return slices.Contains(rows, name) })...)
	slices.Sort(p.fences)
	p.fences = slices.Compact(p.fences)
	high := top + row*float64(len(rows))
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f"><rect width="100%%" height="100%%" fill="#fff"/>%s`, wide, high, style)
	p.text("title", 10, 20, fmt.Sprintf("%s, key %q", v.Rule, v.Key))
	p.text("", 10, 40, v.Text)
	for i := range int64(11) {
		at := p.from + (p.until-p.from)/10*i
		p.bar("grid", at, at, top-14, high)
		p.text("small", p.x(at)-20, top-18, h.since(at).Round(100*time.Microsecond).String())
	}
	for i, name := range rows {
		y := top + row*float64(i)
		p.text("", 10, y+bar, name)
		process, _, _ := strings.Cut(name, "/")
		for _, f := range h.Faults {
			if f.concerns(process) && f.Since <= p.until && f.At >= p.from {
				p.bar(map[bool]string{true: "kill", false: "fault"}[f.Name == Kill], f.Since, f.At, y-7, row-4)
				p.text("small", (p.x(f.Since)+p.x(f.At))/2, y-1, strings.TrimPrefix(f.Name, Stall))
			}
		}
	}
	for i, c := range calls {
		p.call(c, top+row*float64(slices.Index(rows, rowOf(c))), i >= len(beside))
	}
	p.WriteString("</svg>\n")
	_, err := io.WriteString(to, p.String())
	return err
}

func rowOf(c *Call) string { return c.Process + "/" + c.Caller }

// rows are those of the callers.
func (p *picture) rows(calls []*Call) (rows []string) {
	for _, c := range calls {
		rows = append(rows, rowOf(c))
		p.fences = append(p.fences, c.Fence)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

func (p *picture) x(at int64) float64 {
	return left + (right-left)*float64(min(max(at, p.from), p.until)-p.from)/float64(p.until-p.from)
}

func (p *picture) text(class string, x, y float64, text string) {
	fmt.Fprintf(p, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func (p *picture) bar(class string, from, until int64, y, height float64) {
	fmt.Fprintf(p, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, p.x(from), y, max(p.x(until)-p.x(from), 1), height)
}

func (p *picture) call(c *Call, y float64, bad bool) {
	fmt.Fprintf(p, `<g class="%s">`, map[bool]string{true: "bad", false: "other"}[bad])
	if p.bar("wait", c.Asked, cmp.Or(c.Held, c.end()), y+bar/2, 2); c.Held > 0 {
		p.bar("unsure", c.Held, c.exit(), y, bar)
		p.bar("sure", c.Held, c.Certain, y, bar)
		p.text("small", p.x(c.Held), y-1, fmt.Sprint(1+slices.Index(p.fences, c.Fence)))
	}
	free := 0.0 // of texts
	for _, a := range c.Accesses {
		if p.bar("data", a.Until, a.Until, y, bar+4); bad {
			x := max(free, p.x(a.Until)+2)
			free = x + 60
			p.text("small", x, y+bar+9, a.String())
		}
	}
	p.WriteString("</g>\n")
}
