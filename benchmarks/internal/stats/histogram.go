// Package stats has the arithmetic of the benchmarks: a histogram of durations, fairness, medians.
package stats

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// digits that are kept of a duration: it is off by less than 0.8%.
	digits = 2
	// longest is 2^40 ns, 18 minutes. Longer durations count as that.
	longest = 1<<40 - 1
)

// Histogram counts durations. The zero value is empty and ready. It is not safe for concurrent use: give each goroutine its own and
// Merge them.
type Histogram struct {
	counts *hdrhistogram.Histogram // nil: nothing was added
	max    time.Duration           // exactly
}

// Add counts one duration. Of a clock that stepped back, it counts 0.
func (h *Histogram) Add(d time.Duration) {
	h.open()
	_ = h.counts.RecordValue(min(max(int64(d), 0), longest)) // fails beyond the bounds
	h.max = max(h.max, d)
}

func (h *Histogram) open() {
	if h.counts == nil {
		h.counts = hdrhistogram.New(1, longest, digits)
	}
}

// Merge adds all that o has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.counts == nil {
		return
	}
	h.open()
	h.counts.Merge(o.counts)
	h.max = max(h.max, o.max)
}

// Summary is the summary of a histogram.
type Summary struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Summary returns the usual quantiles, and the longest duration exactly.
func (h *Histogram) Summary() Summary {
	if h.counts == nil {
		return Summary{}
	}
	below := func(percent float64) time.Duration {
		return min(time.Duration(h.counts.ValueAtPercentile(percent)), h.max)
	}
	return Summary{Count: uint64(h.counts.TotalCount()), P50: below(50), P99: below(99), P999: below(99.9), Max: h.max}
}
