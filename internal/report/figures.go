package report

import (
	"context"
	"sync/atomic"
	"time"
)

// Name is the name of a lock: what spans and log lines show of it, and its figures.
type Name struct {
	*Figures
	Text string
}

// Figures are those of a name, or of all names beyond a bound together: its counters, and how long its turns take. They are counted
// whether or not anybody measures. Each is read and written by itself, by any goroutine.
type Figures struct {
	Label string       // in Stats and metrics
	turn  atomic.Int64 // moving average of the time a turn takes, ns; 0: none has ended
	wait  waitEstimate // for WithShedHopeless
	attrs atomic.Pointer[attributes]

	Waiting, Held                                                              atomic.Int64
	Acquired, Handoffs, Shed, Timeouts, Lost, Overstays, Unavailable, Degraded atomic.Uint64
	Batches, Batched                                                           atomic.Uint64
}

// Others is the label of the names beyond the bound. No name can be equal to it.
const Others = "(other)"

const (
	// averaging is the weight, as a divisor, of a new sample in the average of turn times: about the last 10 turns
	// count, so the estimate follows a change of load within as many turns.
	averaging = 8
	// settled is after how many equal samples the average is within 0.02% of them.
	settled = 8 * averaging
	// unknownTurn stands for the time of a turn until the first one has ended.
	unknownTurn = 100 * time.Millisecond
	// maxRetryAfter bounds the estimate: nobody knows what comes later.
	maxRetryAfter = 30 * time.Second
)

// Got counts a caller that has the lock.
func (f *Figures) Got(handoff bool) {
	f.Held.Add(1)
	f.Acquired.Add(1)
	if handoff {
		f.Handoffs.Add(1)
	}
}

// Refused counts a caller that was refused instead.
func (f *Figures) Refused(why Outcome) {
	switch why {
	case QueueFull:
		f.Shed.Add(1)
	case Unavailable:
		f.Unavailable.Add(1)
	case TimedOut:
		f.Timeouts.Add(1)
	}
}

// Left notes that a caller has left the line after so long at its head. One that waited behind others delayed those behind it by
// no time at all.
func (f *Figures) Left(after time.Duration) { f.wait.took(after, 1) }

// Turn is a turn that has ended.
type Turn struct {
	Took     time.Duration
	Callers  int  // that it has served
	InLine   bool // the places in line were one after the other, as those of shared callers are not
	Lost     bool // its lock
	Degraded bool // it had no lease
}

// Ended counts a turn that has ended.
func (f *Figures) Ended(t Turn) {
	f.took(t.Took, t.Callers)
	if t.InLine {
		f.wait.took(t.Took, t.Callers)
	}
	if t.Lost {
		f.Lost.Add(1)
	}
	if t.Degraded {
		f.Degraded.Add(1)
	}
	f.Held.Add(-1)
}

// took notes how long a turn was that served so many callers one after the other or, in a batch, together (rule B6). Samples
// that meet may be lost, which an average does not mind.
func (f *Figures) took(d time.Duration, callers int) {
	each, mean := int64(d)/int64(callers), f.turn.Load()
	if mean == 0 {
		mean = each
	}
	for range min(callers, settled) {
		mean += (each - mean) / averaging
	}
	f.turn.Store(max(mean, 1))
}

// TurnTime is the moving average of the time a turn takes, and 0 before one has ended.
func (f *Figures) TurnTime() time.Duration { return time.Duration(f.turn.Load()) }

// RetryAfter estimates when a caller is likely to get a turn, with so many callers ahead of it.
func (f *Figures) RetryAfter(ahead int) time.Duration { // rule L2
	turn := f.TurnTime()
	if turn == 0 {
		turn = unknownTurn
	}
	if ahead > int(maxRetryAfter/turn) {
		return maxRetryAfter
	}
	return min(turn*time.Duration(ahead+1), maxRetryAfter)
}

// MaxAhead returns from how many callers in line on another one will hardly get its turn in time: before deadline, if that is not zero,
// and before its context ends. 0: no number is known.
func (f *Figures) MaxAhead(ctx context.Context, now, deadline time.Time) int {
	if end, ok := ctx.Deadline(); ok && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	if deadline.IsZero() {
		return 0
	}
	return f.wait.tooMany(deadline.Sub(now))
}
