package stack_test

import (
	"fmt"
	"sync"

	"github.com/wllock/wllock"
)

// witness sees who is inside a lock, in all instances. It counts a holder while Held.Err is nil: a busy machine may pause a process beyond
// its lease, or a function that does not look at its context stays (premises 3 and 4 of docs/guarantees.md), and then others are inside
// rightly. So what a witness finds wrong is wrong on any machine: two of one instance, leased or degraded, two leases at once, and a
// fence that has not grown.
type witness struct {
	mu     sync.Mutex               // guards all below
	inside map[*wllock.Held]visitor // those whose function runs
	fence  uint64                   // the greatest of a writer
	wrong  []string
}

type visitor struct {
	instance *wllock.Locker
	shared   bool
}

// enter notes that a function begins. The newcomer is looked at last: what it has then, it had while the others were looked at.
func (w *witness) enter(h *wllock.Held, v visitor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, o := range w.inside {
		alike := v.instance == o.instance && other.Err() == nil && h.Err() == nil
		if (!v.shared || !o.shared) && (alike || isLeased(other) && isLeased(h)) {
			w.wrong = append(w.wrong, fmt.Sprintf("%d beside %d, in one instance: %t", h.Fence(), other.Fence(), alike))
		}
	}
	if h.Fence() <= w.fence && isLeased(h) {
		w.wrong = append(w.wrong, fmt.Sprintf("%d after %d", h.Fence(), w.fence))
	}
	if !v.shared {
		w.fence = max(w.fence, h.Fence())
	}
	if w.inside == nil {
		w.inside = map[*wllock.Held]visitor{}
	}
	w.inside[h] = v
}

// leave notes that a function ends.
func (w *witness) leave(h *wllock.Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inside, h)
}

// isLeased reports that h has a lease. A degraded hold stays degraded, so that is asked last.
func isLeased(h *wllock.Held) bool { return h.Err() == nil && !h.Degraded() }
