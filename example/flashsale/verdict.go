package main

import (
	"fmt"
	"strings"
	"time"
)

// verdict is the table in one sentence. It says what this run has measured and nothing else, also where wllock is the slower
// one, and compares nothing when buyers failed: what they did not do costs nothing.
func verdict(reports []report) string {
	none, one, two := reportOf(reports, "no lock"), reportOf(reports, "one tier"), reportOf(reports, "wllock")
	if none == nil || one == nil || two == nil {
		return ""
	}
	var failed []string
	for _, r := range []*report{one, two} {
		switch {
		case !r.kept():
			return fmt.Sprintf("Verdict: %s did not keep its promise in this run.", r.Round)
		case r.Failed > 0:
			failed = append(failed, fmt.Sprintf("%d buyers failed with %s", r.Failed, r.Round))
		case r.Sold == 0:
			return fmt.Sprintf("Verdict: %s sold nothing, so there is nothing to compare.", r.Round)
		}
	}
	if failed != nil {
		return fmt.Sprintf("Verdict: %s %s; no piece was sold twice under a lock, but %s, so the rest does not compare.",
			none.Round, none.oversale(), strings.Join(failed, " and "))
	}
	return "Verdict: " + none.Round + " " + none.oversale() + "; " + one.Round + " and " + two.Round + " sold no piece twice, " + two.beside(one) + batched(reports, two) + "."
}

// batched says what batches gain beside one order in each hold, if they were played and nobody failed.
func batched(reports []report, one *report) string {
	r := reportOf(reports, "batches")
	if r == nil || !r.kept() || r.Failed > 0 || one.OrdersPerSecond == 0 {
		return ""
	}
	ratio := r.OrdersPerSecond / one.OrdersPerSecond
	if ratio > 0.9 && ratio < 1.1 { // buyers come no faster, as on the page: then only their waits differ
		return fmt.Sprintf("; in batches it sold as many orders per second, with 99 of 100 waits below %.0f ms", r.P99Wait)
	}
	return fmt.Sprintf("; in batches it sold at %s its orders per second", times(ratio))
}

func reportOf(reports []report, round string) *report {
	for i := range reports {
		if reports[i].Round == round {
			return &reports[i]
		}
	}
	return nil
}

func (r *report) oversale() string {
	if r.Oversold == 0 {
		return "oversold nothing this time"
	}
	return fmt.Sprintf("sold %d pieces that did not exist", r.Oversold)
}

// beside says what r gains and loses beside another round that sold the same.
func (r *report) beside(other *report) string {
	gains := []string{fmt.Sprintf("%s with %d requests to the lock service instead of %d", r.Round, r.Requests, other.Requests)}
	if other.OrdersPerSecond > 0 {
		gains = append(gains, fmt.Sprintf("at %s the orders per second", times(r.OrdersPerSecond/other.OrdersPerSecond)))
	}
	if other.P99Wait > 0 {
		gains = append(gains, fmt.Sprintf("and with 99 of 100 waits below %.0f ms instead of %.0f ms", r.P99Wait, other.P99Wait))
	}
	text := strings.Join(gains, ", ")
	if r.Refused > 0 {
		text += fmt.Sprintf("; it told %d buyers at once to try later", r.Refused)
	}
	if r.Left > other.Left {
		text += fmt.Sprintf(", and so has %d pieces left (a higher -threshold sells them)", r.Left)
	}
	return text
}

// lineWidth suits a terminal, and a README.
const lineWidth = 118

// wrapped breaks a sentence into lines.
func wrapped(text string) string {
	var b strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case width+1+len(word) > lineWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}

// times is a ratio in as many digits as can be measured.
func times(ratio float64) string {
	if ratio >= 10 {
		return fmt.Sprintf("%.0f times", ratio)
	}
	return fmt.Sprintf("%.1f times", ratio)
}

// aboutLink explains the slow link below the table.
func aboutLink(rtt time.Duration) string {
	if rtt == 0 {
		return ""
	}
	return fmt.Sprintf("Each request to the lock service took %v longer than it does here, as over a network (-rtt).\n", rtt)
}
