package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBucketsCoverTheRangeWithoutGaps(t *testing.T) {
	for i := range buckets {
		require.Equal(t, i, bucket(upper(i)), "the largest value of a bucket is in it")
		if i+1 < buckets {
			require.Equal(t, i+1, bucket(upper(i)+1), "the next one is in the next bucket")
		}
	}
	assert.Equal(t, uint64(1<<maxBits-1), upper(buckets-1))
}

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
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999} {
		want := exact[int(q*float64(len(exact))+0.5)-1]
		assert.InEpsilon(t, float64(want), float64(h.Quantile(q)), 0.01, "seed %d, q %v", seed, q)
	}
	assert.Equal(t, exact[len(exact)-1], h.Max())
	assert.Equal(t, exact[len(exact)-1], h.Quantile(1))
}

func TestMergedIsAsIfCountedTogether(t *testing.T) {
	var a, b, both Histogram
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
	assert.Equal(t, both, a)
}

func TestHistogramAtItsEdges(t *testing.T) {
	var h Histogram
	assert.Zero(t, h.Quantile(0.5))
	h.Add(-time.Second) // a clock that stepped back
	assert.Zero(t, h.Quantile(1))
	h.Add(time.Hour)
	assert.Equal(t, time.Hour, h.Max())
	assert.Equal(t, uint64(2), h.Count())
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
