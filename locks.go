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
	Degraded  bool          `json:"degraded"`   // held without a lease, because the backend is away or was (LocalOnly)
}

// Locks returns what is in use now, the most waited for and longest held first, at most limit of them. It is for people
// who ask what is going on: it looks at every key in use, and at no two of them at the same moment.
func (l *Locker) Locks(limit int) []LockInfo {
	tenures := map[string]*tenure.Tenure{}
	l.queue.Each(func(key string, t *tenure.Tenure, _ int) { tenures[key] = t })
	now := time.Now()
	infos := make(map[string]LockInfo, len(tenures))
	for key, t := range tenures {
		infos[key] = describe(t.Snapshot(), now)
	}
	var all []LockInfo
	l.queue.Each(func(key string, t *tenure.Tenure, waiting int) {
		if info, ok := infos[key]; ok && tenures[key] == t { // else it has become another key's before we looked at it
			info.Key, info.Waiting = key, waiting
			all = append(all, info)
		}
	})
	slices.SortFunc(all, func(a, b LockInfo) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(limit, 0), len(all))]
}

func describe(s tenure.Snapshot, now time.Time) LockInfo {
	info := LockInfo{
		Mode: s.Mode.String(), AtBackend: s.AtBackend, Holders: s.Holders,
		Fence: s.Fence, Until: s.Until, Lingering: s.Lingering, Degraded: s.Degraded,
	}
	if s.Holders > 0 {
		info.HeldFor = now.Sub(s.Since)
	}
	if !s.Until.IsZero() {
		info.Turns = s.Handoffs + 1
	}
	if s.Degraded {
		info.Until = time.Time{} // what is T from now says nothing
	}
	return info
}
