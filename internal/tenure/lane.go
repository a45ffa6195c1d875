package tenure

import (
	"context"
	"time"
)

// Fit reports whether the lease may serve another caller: then a permit that is given up passes it to a fellow that waits at
// the backend, before those in line (rule P2).
func (t *Tenure) Fit(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current.lease != nil && t.serves(t.mode, now)
}

// Join lets in a caller that waits at the backend for a lane of its own, under the lease of this lane that a fellow has passed
// to it. It reports false, and has changed nothing, if the lease does not serve it after all: the caller waits on, and passes
// this lane on to another, which may ask the backend anew. Were it to do that itself, it would lose its place.
func (t *Tenure) Join(u *Use, ask Ask) bool { // rule P2
	ask.Now = time.Now()
	t.mu.Lock()
	t.tag = ask.Tag
	in := t.servesAsk(&ask) && t.handOn(u, &ask)
	unpin := in && t.reuse() // a caller that had no time to use a lingering lease has passed it on
	t.mu.Unlock()
	t.unpin(unpin)
	return in
}

// alone waits with a lease at hand until the permits of this instance are gone, in a degraded hold perhaps, of which the backend knows nothing.
//
// A permit of this instance that had its lane first may wait at the backend behind the caller, after it has lost its place there. Then that one
// waits for this lease, and the caller for that one. So when all that are left wait at the backend, the caller asks anew, behind them: the
// lease serves nobody, and the next Enter gives it back. It pauses before, lest it ask without end while one of them has lost its place
// and does not know.
func (t *Tenure) alone(ctx context.Context, of Owner, ask Ask) error { // rule P6
	err := of.Alone(ctx, ask.Deadline)
	if err != ErrBehind {
		return err
	}
	if err := t.pause(ctx, ask, poll); err != nil {
		return err
	}
	return ErrBehind
}

// giveBack releases a lease that lingers, for the holder of an early turn: a permit that had its lane before and would not wait asks
// for that first (settle), and this caller follows the permit.
func (t *Tenure) giveBack() { // rules P3 and P6
	t.mu.Lock()
	lingering := t.current.lingering
	if lingering {
		t.makePrev()
	}
	t.mu.Unlock()
	if lingering {
		t.releasePrev()
	}
}

// drain has the current lease serve nobody further.
func (t *Tenure) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.draining = true
}
