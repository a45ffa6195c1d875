package sale

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is the table of the rounds in one sentence. It says what this run has measured and nothing else, also where wllock is the slower
// one, and compares nothing when buyers failed: what they did not do costs nothing.
func Verdict(reports []Report) string {
	none, one, two := reportOf(reports, "no lock"), reportOf(reports, "one tier"), reportOf(reports, "wllock")
	if none == nil || one == nil || two == nil {
		return ""
	}
	var failures []string
	for _, r := range []*Report{one, two} {
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
	return fmt.Sprintf("Verdict: %s %s; %s and %s sold no piece twice, %s%s.", none.Round, oversale, one.Round, two.Round, two.beside(one), batched(reports, two))
}

// batched says what batches gain beside one order in each hold, if they were played and nobody failed.
func batched(reports []Report, one *Report) string {
	r := reportOf(reports, "batches")
	if r == nil || !r.Once() || r.Failed+r.Away > 0 || one.OrdersPerSecond == 0 {
		return ""
	}
	ratio := r.OrdersPerSecond / one.OrdersPerSecond
	if ratio > 0.9 && ratio < 1.1 { // buyers come no faster, as on the page: then only their waits differ
		return fmt.Sprintf("; in batches it sold as many orders per second, with 99 of 100 waits below %.0f ms", r.P99Wait)
	}
	return fmt.Sprintf("; in batches it sold at %s its orders per second", times(ratio))
}

// failures says what those saw who were neither sold a piece nor told that there is none.
func (r *Report) failures() string {
	var all []string
	if r.Away > 0 {
		all = append(all, fmt.Sprintf("%s told %d buyers to come back later, 99 of 100 within %s", r.Round, r.turnedAway(), long(r.P99Told)))
	}
	if r.Failed > 0 {
		all = append(all, fmt.Sprintf("%s left %d buyers without an answer", r.Round, r.Failed))
	}
	return strings.Join(all, ", and ")
}

// long is a time in milliseconds as people say it.
func long(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func reportOf(reports []Report, round string) *Report {
	i := slices.IndexFunc(reports, func(r Report) bool { return r.Round == round })
	if i < 0 {
		return nil
	}
	return &reports[i]
}

// beside says what r gains and loses beside another round that sold the same.
func (r *Report) beside(other *Report) string {
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
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		switch last := &lines[len(lines)-1]; {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) > lineWidth:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return strings.Join(lines, "\n")
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
