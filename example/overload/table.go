package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock"
)

// tables returns Markdown tables: the outcome of the requests, the memory, and the latencies.
func tables(l load, points []point) string {
	best := 0
	for _, p := range points {
		if !p.batches {
			best = max(best, p.good)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "hold %v, %.0f requests per second, clients wait %v\n\n", l.hold, l.rate(), l.patience)
	fmt.Fprintln(&b, "| threshold | goodput/s | of the best one by one | lock in use | refused/s | timed out/s | 5xx | broken | client gone/s | heap | RSS |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s | %.0f | %.1f%% | %.0f%% | %.0f | %.0f | %d | %d | %.0f | %s | %s |\n", p.trial,
			l.perSecond(p.good), 100*float64(p.good)/float64(max(best, 1)), 100*p.busy(l), l.perSecond(p.refused),
			l.perSecond(p.timedOut), p.failures, p.broken, l.perSecond(p.wasted), growth(p.memory.heap), growth(p.memory.rss))
	}
	fmt.Fprintln(&b, "\n| threshold | hold: mean, median | (holds in line + 1) × mean hold | p99 at the server | p99 at the client | bare request: median, p99 |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s | %s, %s ms | %s | %s | %s | %s, %s ms |\n", p.trial, ms(p.holds.mean()), ms(p.holds.quantile(.5)),
			p.limit(), p.against(p.server), p.against(p.client), ms(p.bare.quantile(.5)), ms(p.bare.quantile(.99)))
	}
	return b.String()
}

// String is the trial's title.
func (t trial) String() string {
	switch {
	case t.threshold == wllock.Unlimited:
		return "unlimited"
	case t.batches:
		return strconv.Itoa(t.threshold) + ", batches"
	}
	return strconv.Itoa(t.threshold)
}

func (l load) perSecond(n int) float64 { return float64(n) / l.measured.Seconds() }

// growth shows the change from the first third to the last.
func growth(bytes [2]float64) string {
	if bytes[1] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f → %.1f MB", bytes[0]/1e6, bytes[1]/1e6)
}

func ms(d time.Duration) string {
	t := d.Seconds() * 1e3
	if t >= 100 {
		return fmt.Sprintf("%.0f", t)
	}
	return fmt.Sprintf("%.2f", t)
}

func (p *point) limit() string {
	if p.bound() == 0 {
		return "none"
	}
	return ms(p.bound()) + " ms"
}

// against shows the p99 of t and its difference from the bound.
func (p *point) against(t times) string {
	at := t.quantile(.99)
	switch {
	case len(t) == 0:
		return "none accepted"
	case p.bound() == 0:
		return ms(at) + " ms"
	}
	return fmt.Sprintf("%s ms (%+.0f%%)", ms(at), 100*(at.Seconds()/p.bound().Seconds()-1))
}
