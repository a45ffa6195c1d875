package hold

import (
	"time"

	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

type turn = local.Turn[*tenure.Tenure]

// passes passes a turn on. A permit's lease that may serve one more caller goes to the fellow that has waited longest at the
// backend, who came before those in line; one that may not goes to the first in line, who asks the backend anew with it
// (rule P2). It is out of the tenure's users by now.
func passes(t *turn, of *tenure.Tenure) local.Outcome {
	if t.Permits() > 0 && of.Fit(time.Now()) && t.Offer() {
		return local.Passed
	}
	return t.Pass()
}

// passOn passes a turn on, with what its tenure has at hand. If nobody can use that, it goes back to the backend.
func passOn(t *turn, of *tenure.Tenure) {
	switch passes(t, of) {
	case local.Kept:
		of.Release(t) // rule T5
	case local.Barred:
		of.Yield(t)
	}
}

// passCalled is for a caller that waits for a permit no longer. If a fellow has passed it a lane meanwhile, that goes on to the
// next: the caller has a lease of its own, or has given up.
func (h *Hold) passCalled() {
	if !h.turn.Called() {
		return
	}
	var own turn
	h.turn.Trade(&own)
	h.turn.Swap(&own) // own is the fellow's lane now
	passOn(&own, own.Baton())
}

// join takes the lane that a fellow has passed to the caller, and passes on its own one, with its place at the backend, to the next. If
// the fellow's lease does not serve it after all, the caller keeps its own place, and passes on the fellow's lane, which
// nobody who waits at the backend is offered again.
//
// The turns change before the caller is let in: from then on LeaseLost may pass on h.turn, on another goroutine.
func (h *Hold) join(ask tenure.Ask) bool { // rule P2
	if !h.turn.Called() {
		return false // never: only a fellow calls
	}
	own, mine := new(turn), h.tenure
	h.turn.Trade(own)
	h.tenure = h.turn.Baton()
	if h.tenure.Join(&h.use, ask) {
		giveUp(own, mine)
		return true
	}
	h.turn.Swap(own)
	theirs := h.tenure
	h.tenure = mine
	giveUp(own, theirs)
	return false
}

// giveUp passes on a lane that has no lease to offer.
func giveUp(t *turn, of *tenure.Tenure) {
	switch t.Pass() {
	case local.Kept:
		of.Release(t)
	case local.Barred:
		of.Yield(t)
	}
}
