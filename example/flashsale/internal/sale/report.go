package sale

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// Counts are how buyers were answered, and what that took.
type Counts struct {
	SoldOut  int    `json:"sold_out"` // admitted, and nothing was left
	Refused  int    `json:"refused"`  // not admitted: try later
	Failed   int    `json:"failed"`   // an error that nobody expects, or no answer
	Away     int    `json:"away"`     // told that the lock service was away
	Requests int64  `json:"backend_requests"`
	Failure  string `json:"failure,omitempty"` // the first: later ones are mostly its consequences
}

// Result is what the buyers of a sale saw, in one process or merged over all.
type Result struct {
	Counts
	Arrived, Bought int
	Selling         time.Duration // from the start to the last piece sold

	Statements int64           // to the database, without those of the visits
	Waits      []time.Duration // of admitted buyers; none in a round without a lock
	Told       []time.Duration // from a buyer's arrival until it was told to come back later: refused, or away
	Answers    []time.Duration // from a buyer's arrival until it was told that it has bought
	Visits     []time.Duration // of those that looked at another product meanwhile
}

func (r *Result) fail(count *int, err error) {
	*count++
	r.Failure = cmp.Or(r.Failure, err.Error())
}

// Merge adds what came of it later, or in another process. All were started together, so the longest selling time is that of all.
func (r *Result) Merge(o Result) {
	r.Arrived += o.Arrived
	r.Bought += o.Bought
	r.SoldOut += o.SoldOut
	r.Refused += o.Refused
	r.Failed += o.Failed
	r.Away += o.Away
	r.Requests += o.Requests
	r.Failure = cmp.Or(r.Failure, o.Failure)
	r.Statements += o.Statements
	r.Selling = max(r.Selling, o.Selling)
	r.Waits = append(r.Waits, o.Waits...)
	r.Told = append(r.Told, o.Told...)
	r.Answers = append(r.Answers, o.Answers...)
	r.Visits = append(r.Visits, o.Visits...)
}

// Answered is the number of buyers that got any answer; those inside wait for one.
func (r *Result) Answered() int { return r.Bought + r.SoldOut + r.Refused + r.Away + r.Failed }
func (r *Result) Inside() int   { return r.Arrived - r.Answered() }

// percentile returns in ms the smallest element of sorted that at least p percent do not exceed (nearest rank), or 0.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return milliseconds(sorted[min(max(rank, 1), len(sorted))-1])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Report is one line of a table: first the state of the database, then what the buyers saw.
type Report struct {
	Round string `json:"round"`
	Pool  int    `json:"pool,omitzero"` // connections of each process; 0: not what is compared

	Sold            int `json:"sold"`
	Left            int `json:"left"`     // in stock
	Oversold        int `json:"oversold"` // beyond the stock
	Twice           int `json:"twice"`    // orders for which no piece left the stock; below 0: pieces that left without an order
	FenceViolations int `json:"fence_violations"`

	Told int `json:"told"` // buyers that were told that they have bought
	Counts

	OrdersPerSecond  float64  `json:"orders_per_second"`
	RequestsPerOrder float64  `json:"backend_requests_per_order"`
	Statements       float64  `json:"statements_per_order"`
	CPU              *float64 `json:"database_cpu_ms_per_order,omitempty"`
	P99Told          float64  `json:"p99_told_ms"` // until buyers were told to come back later
	P50Wait          float64  `json:"p50_wait_ms"`
	P99Wait          float64  `json:"p99_wait_ms"`
	P50              float64  `json:"p50_ms"` // until buyers had bought
	P99              float64  `json:"p99_ms"`
	OthersP99        float64  `json:"others_p99_ms"`

	way Way
}

// NewReport sorts the times that buyers saw.
func NewReport(w Way, stock int, a sqlshop.Audit, seen Result) Report {
	for _, times := range [][]time.Duration{seen.Waits, seen.Told, seen.Answers, seen.Visits} {
		slices.Sort(times)
	}
	r := Report{
		Round: w.Title, Sold: a.Sold, Left: a.Left, Oversold: max(0, a.Sold-stock), Twice: a.Sold + a.Left - stock,
		Told: seen.Bought, Counts: seen.Counts,
		P99Told: percentile(seen.Told, 99), P50Wait: percentile(seen.Waits, 50), P99Wait: percentile(seen.Waits, 99),
		P50: percentile(seen.Answers, 50), P99: percentile(seen.Answers, 99), OthersP99: percentile(seen.Visits, 99),
		way: w,
	}
	switch {
	case w.shared:
		r.FenceViolations = a.Fallen
	case w.fenced:
		r.FenceViolations = a.OutOfOrder
	}
	if a.Sold > 0 && seen.Selling > 0 {
		sold := float64(a.Sold)
		r.OrdersPerSecond = sold / seen.Selling.Seconds()
		r.RequestsPerOrder, r.Statements = float64(seen.Requests)/sold, float64(seen.Statements)/sold
	}
	return r
}

// Once reports whether each piece was sold at most once: every order took one from the stock, in the order of the fences.
func (r Report) Once() bool { return r.Twice == 0 && r.FenceViolations == 0 }

// kept reports whether the database says what the buyers were told, and whether each piece was sold at most once, unless the
// way promises nothing.
func (r Report) kept() bool { return r.Sold == r.Told && (r.Once() || r.way.unsafe) }
