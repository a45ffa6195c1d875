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

// passReceived is for a caller that waits for a permit no longer. If a fellow has handed a lane over to it meanwhile, that goes on to the
// next: the caller has a lease of its own, or has given up.
func (h *Hold) passReceived() {
	if theirs := h.turn.Received(); theirs != nil {
		passOn(theirs, theirs.Baton())
	}
}

// join has the caller work in the lane that a fellow has handed over, and passes on its own one, with its place at the backend, to the
// next. If the fellow's lease does not serve it after all, the caller keeps its own place, and passes on the fellow's lane, which
// nobody who waits at the backend is offered again.
//
// The turns change before the caller is let in: from then on LeaseLost may pass on h.turn, on another goroutine.
func (h *Hold) join(ask tenure.Ask) bool { // rule P2
	other := h.turn.Received()
	if other == nil {
		return false // never: only a fellow calls
	}
	mine, theirs := h.tenure, other.Baton()
	h.turn.Swap(other)
	h.tenure = theirs
	if h.tenure.Join(&h.use, ask) {
		giveUp(other, mine)
		return true
	}
	h.turn.Swap(other)
	h.tenure = mine
	giveUp(other, theirs)
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
