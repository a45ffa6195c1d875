// Package stats has the arithmetic of the benchmarks: a histogram of durations, fairness, medians.
package stats

import (
	"math/bits"
	"time"
)

const (
	// subBits sets the resolution: each power of two is cut into 2^subBits buckets, so a value is off by less than 0.8%.
	subBits = 7
	sub     = 1 << subBits
	// maxBits bounds the range: 2^40 ns are 18 minutes. Longer durations count as that.
	maxBits = 40
	buckets = (maxBits - subBits + 1) * sub
)

// Histogram counts durations in buckets whose width grows with the value. The zero value is empty and ready.
// It is not safe for concurrent use: give each goroutine its own and Merge them.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
	max    time.Duration
}

// bucket returns the index of the bucket of v: v itself below sub; above, its leading subBits+1 bits and their place.
func bucket(v uint64) int {
	if v < sub {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift*sub + int(v>>shift)
}

// upper returns the largest value of a bucket.
func upper(i int) uint64 {
	if i < 2*sub {
		return uint64(i)
	}
	shift := i/sub - 1
	return (uint64(i%sub+sub)+1)<<shift - 1
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	v := min(uint64(max(d, 0)), 1<<maxBits-1)
	h.counts[bucket(v)]++
	h.n++
	h.max = max(h.max, d)
}

// Merge adds all that o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration below or at which the fraction q of all lie; 0 of an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q*float64(h.n) + 0.5)
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(time.Duration(upper(i)), h.max)
		}
	}
	return h.max
}

// Summary is the summary of a histogram.
type Summary struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Summary returns the usual quantiles.
func (h *Histogram) Summary() Summary {
	return Summary{
		Count: h.n, P50: h.Quantile(0.5), P99: h.Quantile(0.99), P999: h.Quantile(0.999), Max: h.max,
	}
}
