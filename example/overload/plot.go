package main

import (
	"fmt"
	"strings"
)

const plotHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 %d" font-family="sans-serif" font-size="14">
<title>Goodput and p99 by threshold, at %d times the capacity</title>
<rect width="100%%" height="100%%" fill="white"/>
<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="white"/><rect width="2" height="6" fill="black"/></pattern></defs>
<text x="140" y="28" font-weight="bold">goodput, orders per second</text>
<text x="440" y="28" font-weight="bold">p99 of the accepted</text>
<text x="120" y="28" text-anchor="end">threshold</text>
`

// plot draws two bars per threshold, goodput dark and waits striped, each with its number: nothing rests on colour.
func plot(points []point) string {
	const top, line, width = 44, 44, 180
	var best, longest float64 = 1, 1
	for _, p := range points {
		best, longest = max(best, perSecond(p.good)), max(longest, float64(p.p99))
	}
	var b strings.Builder
	fmt.Fprintf(&b, plotHead, top+line*len(points)+8, overload)
	for i, p := range points {
		y := top + line*i
		text := y + 20
		good, wait := width*perSecond(p.good)/best, width*float64(p.p99)/longest
		fmt.Fprintf(&b, `<text x="120" y="%d" text-anchor="end">%s</text>`+"\n", text, p.title())
		fmt.Fprintf(&b, `<rect x="140" y="%d" width="%.1f" height="28" fill="#444"/>`+"\n", y, good)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.0f</text>`+"\n", 148+good, text, perSecond(p.good))
		fmt.Fprintf(&b, `<rect x="440" y="%d" width="%.1f" height="28" fill="url(#stripes)" stroke="black"/>`+"\n", y, wait)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", 448+wait, text, p.wait())
	}
	return b.String() + "</svg>\n"
}
