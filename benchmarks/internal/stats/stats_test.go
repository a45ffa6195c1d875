package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestQuantilesAreWithinOnePercent(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	var h Histogram
	exact := make([]time.Duration, 20_000)
	for i := range exact {
		exact[i] = time.Duration(1) << random.IntN(34) * time.Duration(1+random.IntN(9))
		h.Add(exact[i])
	}
	slices.Sort(exact)
	got := h.Summary()
	for q, has := range map[float64]time.Duration{0.5: got.P50, 0.99: got.P99, 0.999: got.P999} {
		want := exact[int(q*float64(len(exact))+0.5)-1]
		assert.InEpsilon(t, float64(want), float64(has), 0.01, "seed %d, q %v", seed, q)
	}
	assert.Equal(t, exact[len(exact)-1], got.Max)
	assert.Equal(t, uint64(len(exact)), got.Count)
}

func TestMergedIsAsIfCountedTogether(t *testing.T) {
	var a, b, both, none Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.Add(d)
		if i%3 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	a.Merge(&b)
	a.Merge(&none)
	none.Merge(&a)
	assert.Equal(t, both.Summary(), a.Summary())
	assert.Equal(t, both.Summary(), none.Summary())
}

func TestHistogramAtItsEdges(t *testing.T) {
	var h Histogram
	assert.Zero(t, h.Summary())
	h.Add(-time.Second) // a clock that stepped back
	assert.Equal(t, Summary{Count: 1}, h.Summary())
	h.Add(time.Hour)
	got := h.Summary()
	assert.Equal(t, time.Hour, got.Max)
	assert.Equal(t, uint64(2), got.Count)
	assert.InEpsilon(t, float64(longest), float64(got.P99), 0.01)
}

func TestJain(t *testing.T) {
	assert.InDelta(t, 1, Jain(nil), 0)
	assert.InDelta(t, 1, Jain([]int64{0, 0}), 0)
	assert.InDelta(t, 1, Jain([]int64{5, 5, 5, 5}), 1e-12)
	assert.InDelta(t, 0.25, Jain([]int64{9, 0, 0, 0}), 1e-12)
	assert.InDelta(t, 0.9, Jain([]int64{1, 2}), 1e-12)
}

func TestSpread(t *testing.T) {
	assert.Equal(t, Spread{}, SpreadOf(nil))
	assert.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 2}))
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 2, 4}))
}
