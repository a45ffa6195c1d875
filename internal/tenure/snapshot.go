package tenure

import (
	"time"

	"github.com/wllock/wllock/distributed"
)

// Snapshot is what a key's lease is used for at one moment.
type Snapshot struct {
	Mode      distributed.Mode
	Holders   int       // callers that work under the lease
	Since     time.Time // when the longest of them was let in
	Fence     uint64    // the largest of theirs
	Handoffs  int       // how often the lease was handed on
	Until     time.Time // of the lease; zero: there is none
	Lingering bool
	AtBackend bool // somebody waits at the backend
	Degraded  bool // there is no lease of the backend's
}

// Snapshot may be called by anybody.
func (t *Tenure) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{Mode: t.mode, Holders: t.count, Handoffs: t.handoffs, Lingering: t.lingering, AtBackend: t.place != nil}
	if t.lease != nil {
		s.Until, s.Degraded = t.lease.Until(), degraded(t.lease)
	}
	for u := t.users; u != nil; u = u.after {
		s.Fence = max(s.Fence, u.fence)
		if s.Since.IsZero() || u.began.Before(s.Since) {
			s.Since = u.began
		}
	}
	return s
}
