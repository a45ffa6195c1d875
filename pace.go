package wllock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// pace measures how fast the lines of a name move, for callers that would rather not wait in vain: how long each place
// in line takes, and how much that varies. One who leaves the line is a place that took no time. Shared callers are not
// counted, here and in the line, for many of them may go in at once; so what is estimated is less than the truth.
type pace struct {
	wanted atomic.Bool // somebody has asked; before that nothing is measured

	mu       sync.Mutex // guards the rest
	seen     int        // places, up to paceMemory
	mean     float64    // ns
	variance float64    // ns²
}

const (
	// paceMemory is about how many places count: enough that the mean is off by a sixteenth of the deviation (the root
	// of 1 in 2*128-1), few enough to follow a change of load within seconds.
	paceMemory = 128
	// paceLearned is how many must have been seen before anybody is refused.
	paceLearned = 16
	// meanDoubt, in deviations, is what the mean may be too large by: 2.4 times the sixteenth.
	meanDoubt = 0.15
	// lineLuck, in deviations of a sum, is by how much a line may be faster than it should. It is little, for few are
	// refused just at the border, and the rest of the turn under way, which is not counted, comes on top. Measured with
	// four kinds of load at 1.5 times what they can take: 0.3% wrongly refused at most; with 0.1 and 0.3 it were 1.7%.
	lineLuck = 0.6
)

// took notes how long one place in line was. Of samples that meet, one is lost, which an average does not mind.
func (p *pace) took(d time.Duration) {
	if !p.wanted.Load() || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	p.seen = min(p.seen+1, paceMemory)
	weight := 1 / float64(p.seen)
	off := float64(d) - p.mean
	p.mean += weight * off
	p.variance = (1 - weight) * (p.variance + weight*off*off)
}

// hopeful returns from how many callers in line on another one's turn will not come within budget, but for a small
// chance; 0: no number is known. n places take at least
//
//	n * (mean - meanDoubt*deviation) - lineLuck*deviation*sqrt(n)
//
// which is solved for n.
func (p *pace) hopeful(budget time.Duration) int {
	if !p.wanted.Load() {
		p.wanted.Store(true)
	}
	p.mu.Lock()
	seen, mean, deviation := p.seen, p.mean, math.Sqrt(p.variance)
	p.mu.Unlock()
	each, luck := mean-meanDoubt*deviation, lineLuck*deviation
	if seen < paceLearned || each <= 0 {
		return 0
	}
	root := (luck + math.Sqrt(luck*luck+4*each*float64(max(budget, 0)))) / (2 * each)
	return int(min(root*root, math.MaxInt32)) + 1
}

// hopeful is that of pace, for a caller that waits until deadline, if that is not zero, or until its context ends.
func (n *nameState) hopeful(ctx context.Context, now, deadline time.Time) int {
	if end, ok := ctx.Deadline(); ok && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	if deadline.IsZero() {
		return 0
	}
	return n.pace.hopeful(deadline.Sub(now))
}
