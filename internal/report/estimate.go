package report

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// waitEstimate measures how fast the queues of a name move, for callers that would rather not wait in vain: how long
// each place in line takes, and how much that varies. A caller that leaves the line is a place that took no time. Shared
// callers are not counted, here and in the line, because many of them may enter at once; so the estimate is less than
// the truth.
type waitEstimate struct {
	wanted atomic.Bool // somebody has asked; before that nothing is measured

	mu       sync.Mutex // guards the rest
	seen     int        // places measured, up to waitMemory
	mean     float64    // ns
	variance float64    // ns²
}

const (
	// waitMemory is about how many places count: enough that the mean is off by a sixteenth of the deviation (the root
	// of 1 in 2*128-1), few enough to follow a change of load within seconds.
	waitMemory = 128
	// waitLearned is how many places must have been measured before anybody is refused.
	waitLearned = 16
	// meanError, in deviations, is by how much the mean may be too large: 2.4 times the sixteenth.
	meanError = 0.15
	// lineLuck, in deviations of a sum, is by how much a line may be faster than it should. It is small because few are
	// refused just at the border, and the rest of the turn under way, which is not counted, is added. Measured with four
	// kinds of load at 1.5 times their capacity: at most 0.3% wrongly refused; with 0.1 and 0.3 it would be 1.7%.
	lineLuck = 0.6
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

// tooMany returns how many places take longer than budget, but for a small chance; 0: not known. n places take
// at least
//
//	n * (mean - meanError*deviation) - lineLuck*deviation*sqrt(n)
//
// which is solved for n.
func (w *waitEstimate) tooMany(budget time.Duration) int {
	if !w.wanted.Load() {
		w.wanted.Store(true)
	}
	w.mu.Lock()
	seen, mean, deviation := w.seen, w.mean, math.Sqrt(w.variance)
	w.mu.Unlock()
	each, luck := mean-meanError*deviation, lineLuck*deviation
	if seen < waitLearned || each <= 0 {
		return 0
	}
	root := (luck + math.Sqrt(luck*luck+4*each*float64(max(budget, 0)))) / (2 * each)
	return int(min(root*root, math.MaxInt32)) + 1
}
