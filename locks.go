package wllock

import (
	"cmp"
	"slices"
	"time"

	"github.com/wllock/wllock/internal/tenure"
)

// LockInfo tells of one key that this Locker uses at a moment: somebody here holds its lock, waits for it, or it is on
// its way back to the backend.
type LockInfo struct {
	Key       string        `json:"key"`        // full name
	Mode      string        `json:"mode"`       // "exclusive" or "shared"
	Waiting   int           `json:"waiting"`    // callers in the local queue
	AtBackend bool          `json:"at_backend"` // the first of them waits in the backend's queue
	Holders   int           `json:"holders"`    // callers inside
	HeldFor   time.Duration `json:"held_for"`   // how long the longest of them has been, ns
	Fence     uint64        `json:"fence"`      // the largest of theirs
	Turns     int           `json:"turns"`      // callers served by the running tenure
	Until     time.Time     `json:"until"`      // the lease lasts at least so long; zero: there is none
	Lingering bool          `json:"lingering"`  // the lease is kept for nobody in particular
}

// Locks returns what is in use now, the most waited for and longest held first, at most limit of them. It is for people
// who ask what is going on: it looks at every key in use, and no two of them at the same moment.
func (l *Locker) Locks(limit int) []LockInfo {
	var all []LockInfo
	var tenures []*tenure.Tenure
	l.queue.Each(func(key string, t *tenure.Tenure, waiting int) {
		all = append(all, LockInfo{Key: key, Waiting: waiting})
		tenures = append(tenures, t)
	})
	now := time.Now()
	for i, t := range tenures {
		s, at := t.Snapshot(), &all[i]
		at.Mode, at.AtBackend, at.Holders = s.Mode.String(), s.AtBackend, s.Holders
		at.Fence, at.Until, at.Lingering = s.Fence, s.Until, s.Lingering
		if s.Holders > 0 {
			at.HeldFor = now.Sub(s.Since)
		}
		if !s.Until.IsZero() {
			at.Turns = s.Handoffs + 1
		}
	}
	slices.SortFunc(all, func(a, b LockInfo) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(limit, 0), len(all))]
}
