package sale

import (
	"fmt"
	"strings"
)

// Verdict is the table of the rounds in one sentence. It says what this run has measured and nothing else, also where wllock is the slower
// one, and compares nothing when buyers failed: what they did not do costs nothing.
func Verdict(reports []Report) string {
	rounds := map[string]*Report{}
	for i := range reports {
		rounds[reports[i].Round] = &reports[i]
	}
	none, one, two, batches := rounds["no lock"], rounds["one tier"], rounds["wllock"], rounds["batches"]
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
	text := fmt.Sprintf("Verdict: %s %s; %s and %s sold no piece twice, %s", none.Round, oversale, one.Round, two.Round, two.beside(one))
	if batches == nil || !batches.Once() || batches.Failed+batches.Away > 0 || two.OrdersPerSecond == 0 {
		return text + "."
	}
	if ratio := batches.OrdersPerSecond / two.OrdersPerSecond; ratio <= 0.9 || ratio >= 1.1 {
		return text + fmt.Sprintf("; in batches it sold at %s its orders per second.", times(ratio))
	} // otherwise buyers come no faster, as on the page: only their waits differ
	return text + fmt.Sprintf("; in batches it sold as many orders per second, with 99 of 100 waits below %.0f ms.", batches.P99Wait)
}

// failures says what those saw who were neither sold a piece nor told that there is none.
func (r *Report) failures() string {
	var all []string
	if r.Away > 0 {
		within := fmt.Sprintf("%.0f ms", r.P99Told)
		if r.P99Told >= 1000 {
			within = fmt.Sprintf("%.1f s", r.P99Told/1000)
		}
		all = append(all, fmt.Sprintf("%s told %d buyers to come back later, 99 of 100 within %s", r.Round, r.turnedAway(), within))
	}
	if r.Failed > 0 {
		all = append(all, fmt.Sprintf("%s left %d buyers without an answer", r.Round, r.Failed))
	}
	return strings.Join(all, ", and ")
}

// beside says what r gains and loses beside another round that sold the same.
func (r *Report) beside(other *Report) string {
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
	if ratio >= 10 {
		return fmt.Sprintf("%.0f times", ratio)
	}
	return fmt.Sprintf("%.1f times", ratio)
}

// lineWidth suits a terminal, and a README.
const lineWidth = 118

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
