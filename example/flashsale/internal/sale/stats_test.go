package sale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	cases := map[string]struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		"of none":          {nil, 50, 0},
		"of one":           {hundred[:1], 99, 1},
		"median of two":    {hundred[:2], 50, 1},
		"median of three":  {hundred[:3], 50, 2},
		"99 of a hundred":  {hundred, 99, 99},
		"50 of a hundred":  {hundred, 50, 50},
		"100 is the last":  {hundred, 100, 100},
		"0 is the first":   {hundred, 0, 1},
		"99 of few: last":  {hundred[:10], 99, 10},
		"between two ones": {hundred[:10], 45, 5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, milliseconds(c.want), percentile(c.sorted, c.p), 0) })
	}
}

func TestMerge(t *testing.T) {
	a := Result{Bought: 1, Counts: Counts{SoldOut: 2, Refused: 3, Requests: 5}, Selling: 7, Waits: []time.Duration{1}, Told: []time.Duration{3}}
	a.Merge(Result{
		Arrived: 70, Bought: 10, Counts: Counts{SoldOut: 20, Refused: 30, Failed: 1, Away: 1, Requests: 50, Failure: "x"}, Selling: 6,
		Told: []time.Duration{4}, Waits: []time.Duration{2},
	})
	a.Merge(Result{Counts: Counts{Failed: 1, Failure: "y"}})
	assert.Equal(t, Result{
		Arrived: 70, Bought: 11, Counts: Counts{SoldOut: 22, Refused: 33, Failed: 2, Away: 1, Requests: 55, Failure: "x"}, Selling: 7,
		Waits: []time.Duration{1, 2}, Told: []time.Duration{3, 4},
	}, a)
	assert.Equal(t, 69, a.Answered())
	assert.Equal(t, 1, a.Inside())
}

func TestReport(t *testing.T) {
	seen := Result{
		Bought: 12, Counts: Counts{SoldOut: 3, Refused: 2, Failed: 2, Away: 1, Requests: 6, Failure: "x"}, Selling: 2 * time.Second,
		Told:  []time.Duration{3 * time.Millisecond, 5 * time.Millisecond, 1 * time.Millisecond},
		Waits: []time.Duration{4 * time.Millisecond, 1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond},
	}
	assert.Equal(t, Report{
		Round: "wllock", Sold: 12, Oversold: 2, Twice: 3, Left: 1, FenceViolations: 4, Told: 12,
		Counts: seen.Counts, P99Told: 5, OrdersPerSecond: 6, RequestsPerOrder: 0.5, P50Wait: 2, P99Wait: 4,
	}, bare(NewReport(Rounds[2], 10, sqlshop.Audit{Sold: 12, Left: 1, OutOfOrder: 4}, seen)))

	assert.Zero(t, NewReport(Rounds[0], 10, sqlshop.Audit{Sold: 12, OutOfOrder: 4}, seen).FenceViolations, "no lock, no fence")
	assert.Equal(t, 1, NewReport(Rounds[3], 10, sqlshop.Audit{Sold: 12, OutOfOrder: 4, Fallen: 1}, seen).FenceViolations, "orders of a batch have one fence")
	assert.Zero(t, NewReport(Rounds[1], 10, sqlshop.Audit{}, Result{}).OrdersPerSecond, "not NaN, which is no JSON")
}

// bare is a report without its way, which has functions and so equals none.
func bare(r Report) Report {
	r.way = Way{}
	return r
}
