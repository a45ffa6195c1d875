package tenure

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// Snapshot is the state of a key's tenure at one moment.
type Snapshot struct {
	Mode      distributed.Mode
	Limit     int       // of permits, 0 if none
	Holders   int       // callers that work under the lease
	Since     time.Time // when the first of them was let in
	Fence     uint64    // the largest of theirs
	Handoffs  int       // how often the lease was handed on
	Until     time.Time // of the lease, zero if there is none
	Lingering bool
	Staying   bool // the caller has returned, and the lock stays taken
	AtBackend bool // a caller waits at the backend
	Degraded  bool // callers work without a lease of the backend
	Batch     int  // callers that the batch serves that runs now, 0 if none does
}

// Snapshot may be called by anybody.
func (t *Tenure) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	cur := &t.current
	s := Snapshot{Mode: t.mode, Limit: int(t.limit), Holders: t.users.count, Handoffs: cur.handoffs, Lingering: cur.lingering, AtBackend: t.place != nil}
	if cur.lease != nil {
		s.Until, s.Degraded = cur.lease.Until(), degraded(cur.lease)
	}
	for u := t.users.first; u != nil; u = u.after {
		s.Fence, s.Batch, s.Staying = max(s.Fence, u.fence), s.Batch+u.Batch(), u.staying
		if s.Since.IsZero() || u.began.Before(s.Since) {
			s.Since = u.began
		}
	}
	return s
}

// Holder names the instance that has the lock, as far as this one knows: itself, or the one that its place waits for, as the
// backend's answers told (rule T11). It may be called by anybody.
func (t *Tenure) Holder() string {
	t.mu.Lock()
	leased, place := t.current.lease != nil, t.place
	t.mu.Unlock()
	if leased {
		return t.group.config.Instance
	}
	if place != nil {
		return place.Holder()
	}
	return ""
}
