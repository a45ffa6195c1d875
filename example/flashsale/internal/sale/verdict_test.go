package sale

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// played is a run of 100 pieces in which wllock gains.
func played() []Report {
	return []Report{
		{Round: "no lock", Sold: 1000, Oversold: 900, Twice: 900},
		{Round: "one tier", Sold: 100, OrdersPerSecond: 311, Counts: Counts{Requests: 2000}, P99Wait: 1584.1},
		{Round: "wllock", Sold: 100, OrdersPerSecond: 622, Counts: Counts{Requests: 9, Refused: 739}, P99Wait: 163.2},
		{Round: "batches", FenceViolations: 1},
	}
}

func TestVerdict(t *testing.T) {
	assert.Equal(t, "Verdict: no lock sold 900 pieces that did not exist; one tier and wllock sold no piece twice, wllock with 9 requests "+
		"to the lock service instead of 2000, at 2.0 times the orders per second, and with 99 of 100 waits below 163 ms instead of 1584 ms; "+
		"it told 739 buyers at once to try later.", Verdict(played()))
}

func TestTheVerdictOnBatches(t *testing.T) {
	batches := Report{Round: "batches", Sold: 100, OrdersPerSecond: 6220}
	assert.Contains(t, Verdict(append(played()[:3], batches)), "; in batches it sold at 10 times its orders per second.")
	batches.OrdersPerSecond, batches.P99Wait = 640, 32
	assert.Contains(t, Verdict(append(played()[:3], batches)), "; in batches it sold as many orders per second, with 99 of 100 waits below 32 ms.")
	batches.FenceViolations = 1
	assert.NotContains(t, Verdict(append(played()[:3], batches)), "batches")
}

// What was not measured, or not won, is not claimed.
func TestTheVerdictClaimsNothingElse(t *testing.T) {
	cases := map[string]struct {
		change    func(none, one, two *Report)
		says, not string
	}{
		"slower":         {func(_, _, two *Report) { two.OrdersPerSecond = 155 }, "at 0.5 times the orders per second", ""},
		"no oversale":    {func(none, _, _ *Report) { none.Oversold = 0 }, "no lock oversold nothing this time;", "did not exist"},
		"nobody refused": {func(_, _, two *Report) { two.Refused = 0 }, "1584 ms.", "try later"},
		"some left":      {func(_, _, two *Report) { two.Sold, two.Left = 62, 38 }, "so has 38 pieces left", ""},
		"none sold":      {func(_, _, two *Report) { two.Sold, two.Left = 0, 100 }, "wllock sold nothing", "times"},
		"buyers failed":  {func(_, one, _ *Report) { one.Failed = 3 }, "Not all went well: one tier left 3 buyers without an answer.", "times"},
		"both failed": {func(_, one, two *Report) {
			one.Failed, one.Away, one.Refused, one.P99Told = 2, 3, 1, 4400
			two.Failed, two.Away, two.Refused, two.P99Told = 0, 4, 0, 9.4
		}, "one tier told 4 buyers to come back later, 99 of 100 within 4.4 s, and one tier left 2 buyers without an answer; " +
			"wllock told 4 buyers to come back later, 99 of 100 within 9 ms. So the rest", "times"},
		"broken promise": {func(_, _, two *Report) { two.FenceViolations = 1 }, "wllock did not keep its promise", "twice"},
		"oversold":       {func(_, one, _ *Report) { one.Sold, one.Oversold, one.Twice = 101, 1, 1 }, "one tier did not keep its promise", "twice"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := played()
			c.change(&all[0], &all[1], &all[2])
			got := Verdict(all)
			assert.Contains(t, got, c.says)
			if c.not != "" {
				assert.NotContains(t, got, c.not)
			}
		})
	}
}

func TestWrapped(t *testing.T) {
	text := wrapped(strings.Repeat("word ", 60))
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(line), lineWidth+1)
	}
	assert.Equal(t, strings.Repeat("word ", 60), strings.ReplaceAll(text, "\n", " ")+" ")
}
