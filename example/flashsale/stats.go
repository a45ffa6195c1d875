package main

import (
	"math"
	"slices"
	"time"
)

// result is what the buyers of a round saw, in one process or merged over all.
type result struct {
	Bought   int             `json:"bought"`
	SoldOut  int             `json:"sold_out"` // admitted, and nothing was left
	Refused  int             `json:"refused"`  // not admitted: try later
	Failed   int             `json:"failed"`
	Requests int64           `json:"requests"`   // to the lock service
	Selling  time.Duration   `json:"selling_ns"` // from the start to the last piece sold
	Waits    []time.Duration `json:"waits_ns"`   // of admitted buyers; none in a round without a lock
	Failure  string          `json:"failure,omitempty"`

	Answers    []time.Duration `json:"answers_ns"` // from a buyer's arrival until it was told that it has bought
	Visits     []time.Duration `json:"visits_ns"`  // of those that looked at another product meanwhile
	Statements int64           `json:"statements"` // to the database of -db, without those of the visits
}

// merge adds the result of another process. All were started together, so the longest selling time is that of all.
func (r *result) merge(o result) {
	r.Bought += o.Bought
	r.SoldOut += o.SoldOut
	r.Refused += o.Refused
	r.Failed += o.Failed
	r.Requests += o.Requests
	r.Selling = max(r.Selling, o.Selling)
	r.Waits = append(r.Waits, o.Waits...)
	r.Answers = append(r.Answers, o.Answers...)
	r.Visits = append(r.Visits, o.Visits...)
	r.Statements += o.Statements
	if r.Failure == "" {
		r.Failure = o.Failure
	}
}

// answered is the number of buyers that got any answer.
func (r *result) answered() int { return r.Bought + r.SoldOut + r.Refused + r.Failed }

// percentile returns the smallest element of sorted that at least p percent do not exceed (nearest rank), or 0.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// report is one line of the table: first the state of the database, then what the buyers saw.
type report struct {
	Round            string  `json:"round"`
	Sold             int     `json:"sold"`
	Oversold         int     `json:"oversold"`
	Left             int     `json:"left"` // in stock
	FenceViolations  int     `json:"fence_violations"`
	SoldOut          int     `json:"sold_out"`
	Refused          int     `json:"refused"`
	Failed           int     `json:"failed"`
	OrdersPerSecond  float64 `json:"orders_per_second"`
	Requests         int64   `json:"backend_requests"`
	RequestsPerOrder float64 `json:"backend_requests_per_order"`
	P50Wait          float64 `json:"p50_wait_ms"`
	P99Wait          float64 `json:"p99_wait_ms"`
	Failure          string  `json:"failure,omitempty"`

	stock  int
	fenced bool // it must keep its promise
	locked bool // there was a lock to wait for and requests to count
}

func newReport(r round, stock int, a audit, seen result) report {
	slices.Sort(seen.Waits)
	rep := report{
		Round:    r.title,
		Sold:     a.Sold,
		Oversold: max(0, a.Sold-stock),
		Left:     a.Left,
		SoldOut:  seen.SoldOut,
		Refused:  seen.Refused,
		Failed:   seen.Failed,
		Requests: seen.Requests,
		P50Wait:  milliseconds(percentile(seen.Waits, 50)),
		P99Wait:  milliseconds(percentile(seen.Waits, 99)),
		Failure:  seen.Failure,
		stock:    stock,
		locked:   r.locked,
		fenced:   r.fenced,
	}
	if r.fenced {
		rep.FenceViolations = a.OutOfOrder
	}
	if r.shared {
		rep.FenceViolations = a.Fallen
	}
	if a.Sold > 0 && seen.Selling > 0 {
		rep.OrdersPerSecond = float64(a.Sold) / seen.Selling.Seconds()
		rep.RequestsPerOrder = float64(seen.Requests) / float64(a.Sold)
	}
	return rep
}

// kept reports whether each piece was sold at most once: every order took one from the stock, in the order of the fences.
func (r report) kept() bool {
	return r.Oversold == 0 && r.FenceViolations == 0 && r.Sold+r.Left == r.stock
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
