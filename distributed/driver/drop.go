package driver

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Dropped takes what a Drop has found. Unknown: the attempt is dropped again.
func (a *Attempt[W]) Dropped(found Outcome) {
	a.mu.Lock()
	switch {
	case found == Unknown:
		a.tried = true
	case a.state == adopted && found == Missing: // the Enter has removed it, perhaps, and knows
	case a.state == dropping, a.state == adopted:
		a.ended(found)
		return
	}
	a.mu.Unlock()
}

// Unanswered takes why a Drop was not: it may have been carried out, and the attempt is dropped again.
func (a *Attempt[W]) Unanswered(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried, a.why = true, why
}

// ended notes what a removal has found, and gives up mu, which the caller holds.
func (a *Attempt[W]) ended(found Outcome) {
	var err error
	if found == Lost || found == Missing && !a.tried {
		err = distributed.ErrLeaseLost
	}
	a.end(err)
}

// end notes what became of the attempt, and gives up mu, which the caller holds.
func (a *Attempt[W]) end(err error) {
	a.state, a.err = over, err
	a.wake()
	l, watched, err := a.lease, a.watched, a.outcome()
	a.mu.Unlock()
	a.Lane.forget(a)
	if watched {
		l.Released(err)
	}
}

// giveUp notes that the attempt is not dropped any more: it has ended with its session, or expired, or will.
func (a *Attempt[W]) giveUp() {
	a.mu.Lock()
	switch {
	case a.state != ending && a.state != dropping:
		a.mu.Unlock()
	case a.Lane.session != nil:
		a.end(distributed.ErrLeaseLost)
	default:
		a.end(a.b.unanswered("release", errSilent, a.why))
	}
}

// DropRefused records that the service refused to remove the attempt. Callers that wait for the removal get err, and it is tried again.
func (a *Attempt[W]) DropRefused(err error) {
	a.mu.Lock()
	if a.state != dropping {
		a.mu.Unlock()
		return
	}
	a.denied, a.why, a.refused = true, err, true
	a.wake()
	l, watched := a.lease, a.watched && a.b.set.Pause == nil // else it is tried again soon
	a.watched = a.watched && !watched
	a.mu.Unlock()
	if watched {
		l.Released(err)
	}
}

// wake wakes those that wait for an answer. The caller holds mu.
func (a *Attempt[W]) wake() {
	if a.change != nil {
		close(a.change)
		a.change = nil
	}
}

// outcome is the answer to a release. The caller holds mu.
func (a *Attempt[W]) outcome() error {
	if !a.wasHeld && a.err == nil {
		return distributed.ErrLeaseLost // it had expired here before it was removed
	}
	return a.err
}

// begun is called when a Drop of the attempt is about to be sent. It reports false if it is not to be: an Enter removes it, or it is
// over (rule C3).
func (a *Attempt[W]) begun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ending {
		a.state = dropping
	}
	a.denied, a.refused = false, false
	return a.state == dropping
}

// left reports, after a Drop, that something of the attempt may be left, and that the Drop was refused.
func (a *Attempt[W]) left() (is, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == ending || a.state == dropping, a.refused
}

// worthwhile reports that the attempt is to be dropped again after a pause, the so-manieth: not when it has expired, nor if it was
// refused and the Backend is closed.
func (a *Attempt[W]) worthwhile(now time.Time) (tries int, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	return a.tries, now.Before(a.ends()) && !(a.refused && a.b.Closed())
}

// ends is when a service without sessions has forgotten the attempt by itself, also if it has carried out what it did not answer. A place
// lasts for a TTL, and may be granted at its end. The caller holds mu.
func (a *Attempt[W]) ends() time.Time {
	if a.lease != nil {
		return a.heard.Add(a.Lasts)
	}
	return a.heard.Add(a.Window + a.TTL)
}

// patience is how long the answer to a Drop is waited for.
func (a *Attempt[W]) patience() time.Duration {
	if s := a.Lane.session; s != nil {
		return s.Patience()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(time.Until(a.ends()), a.Window)
}

// again has an attempt dropped now that is dropped already, for somebody who asks again: an earlier refusal is not the answer.
func (a *Attempt[W]) again() {
	a.mu.Lock()
	a.denied = false
	a.mu.Unlock()
	a.Lane.Retry()
}

// wait waits until nothing of the attempt is left. The removal goes on when the caller's time has ended.
func (a *Attempt[W]) wait(ctx context.Context, what string, patience time.Duration) error {
	change, err := a.answer()
	if change == nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for ; change != nil; change, err = a.answer() {
		select {
		case <-change:
			continue
		case <-timer.C:
			err = errSilent
		case <-ctx.Done():
			err = ctx.Err()
		}
		if change, late := a.answer(); change == nil { // it wins
			return late
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.b.unanswered(what, err, a.why)
	}
	return err
}

// answer returns the answer to a Drop, or a channel that is closed when there is one, or may be.
func (a *Attempt[W]) answer() (change <-chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == over:
		return nil, nil
	case a.denied:
		return nil, a.why
	case a.change == nil:
		a.change = make(chan struct{})
	}
	return a.change, nil
}

var errSilent = keyless.Errorf("the service is silent")

// unanswered wraps the end of a caller's time, or says what came of the latest try.
func (b *Backend[W]) unanswered(what string, err, why error) error {
	if why != nil {
		return distributed.Unavailable("", why, err)
	}
	return distributed.Unavailable(b.set.Name+": "+what, err)
}
