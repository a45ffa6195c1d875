package stats

import (
	"cmp"
	"slices"
)

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
