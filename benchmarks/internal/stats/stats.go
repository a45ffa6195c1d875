// Package stats has the arithmetic of the benchmarks: a histogram of durations, fairness, medians.
package stats

import (
	"cmp"
	"slices"
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

// Jain returns Jain's index of fairness of what each party got: 1 if all got the same, 1/n if one got all, and 1 for nothing
// at all.
func Jain(got []int64) float64 {
	var sum, squares float64
	for _, g := range got {
		sum += float64(g)
		squares += float64(g) * float64(g)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// Spread is a median and how far the values lie apart.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of values; of an even number, the median is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values)}
}

// Median returns the value in the middle, of an even number the mean of the two.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[T])
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}
