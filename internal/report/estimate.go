package report

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// waitEstimate measures how fast the queues of a name move, for callers that would rather not wait in vain: how long
// each place in line takes, and how much that varies. A caller that leaves the line counts only if it has waited at its head: most that
// leave have waited in vain, and would make the line look quick. Shared callers are not counted, here and in the line, because many of them
// may enter at once; so the estimate is less than the truth.
type waitEstimate struct {
	wanted atomic.Bool // somebody has asked; before that nothing is measured

	mu       sync.Mutex // guards the rest
	seen     int        // places measured, up to waitMemory
	mean     float64    // ns
	variance float64    // ns²
}

const (
	// waitMemory is about how many places count: enough that the mean is off by a sixteenth of the deviation (the root
	// of 1 in 2*128-1), few enough to follow a change of load soon.
	waitMemory = 128
	// waitLearned is how many places must have been measured before anybody is refused.
	waitLearned = 16
	// waitMargin, in deviations of a sum, is by how much a line may be slower than its mean. It is measured: see TestShedHopeless. With 0, twice
	// as many wait in vain; with 1, 2% of the lock's time is lost.
	waitMargin = 0.5
)

// took notes how long so many places in line were together: one, or those of a batch (rule B6). Of samples that meet, one is lost,
// which an average does not mind.
func (w *waitEstimate) took(d time.Duration, places int) {
	if !w.wanted.Load() || !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	for range min(places, waitMemory) {
		w.note(d / time.Duration(places))
	}
}

// note adds one sample. The caller holds mu.
func (w *waitEstimate) note(d time.Duration) {
	w.seen = min(w.seen+1, waitMemory)
	weight := 1 / float64(w.seen)
	off := float64(d) - w.mean
	w.mean += weight * off
	w.variance = (1 - weight) * (w.variance + weight*off*off)
}

// tooMany returns how many places in line are too many to get the lock within budget; 0: not known. n places take
//
//	n * mean + waitMargin * deviation * sqrt(n)
//
// or less, more often than not. That is solved for n.
func (w *waitEstimate) tooMany(budget time.Duration) int {
	if !w.wanted.Load() {
		w.wanted.Store(true)
	}
	w.mu.Lock()
	seen, mean, margin := w.seen, w.mean, waitMargin*math.Sqrt(w.variance)
	w.mu.Unlock()
	if seen < waitLearned || mean <= 0 {
		return 0
	}
	root := (math.Sqrt(margin*margin+4*mean*float64(max(budget, 0))) - margin) / (2 * mean)
	return max(int(min(root*root, math.MaxInt32)), 1)
}
