package wllock

import (
	"cmp"
	"slices"
	"time"

	"github.com/wllock/wllock/internal/tenure"
)

// LockInfo describes one key in use by this Locker at one moment: a caller here holds its lock or waits for it, or its
// lease is on the way back to the backend. The page of package debug has it as JSON, with these names.
type LockInfo struct {
	Key       string        `json:"key"`              // full name
	Mode      string        `json:"mode"`             // "exclusive" or "shared"
	Waiting   int           `json:"waiting"`          // callers in the local queue
	AtBackend bool          `json:"at_backend"`       // the first of them waits in the backend's queue
	Holders   int           `json:"holders"`          // callers that hold the lock
	HeldFor   time.Duration `json:"held_for_ns"`      // since the first of them acquired it
	Fence     uint64        `json:"fence,string"`     // the largest of theirs; text in JSON, where many parsers round numbers beyond 2^53
	Turns     int           `json:"turns"`            // callers served by the running tenure
	Batch     int           `json:"batch"`            // callers of the batch that runs; 0: none does
	Until     time.Time     `json:"until,omitzero"`   // the lease lasts at least until then; zero: there is none
	Lingering bool          `json:"lingering"`        // the lease is idle, and kept for the next local caller
	Holder    string        `json:"holder,omitempty"` // the Locker.Instance that has the lock, this one's or another's; "": not known
	Staying   bool          `json:"staying"`          // the function has returned, and the lock stays taken (WithHoldAtLeast)
	Degraded  bool          `json:"degraded"`         // held without a lease, because the backend is or was unreachable (LocalOnly)
}

// Locks returns at most limit keys in use now, ordered by waiters, then by time held. For diagnostics: the snapshot looks
// at every key in use, and is not atomic across keys.
func (l *Locker) Locks(limit int) []LockInfo {
	tenures := map[string]*tenure.Tenure{}
	l.queue.Each(func(key string, t *tenure.Tenure, _ int) { tenures[key] = t })
	now := time.Now()
	infos := make(map[string]LockInfo, len(tenures))
	for key, t := range tenures {
		info := describe(t.Snapshot(), now)
		info.Holder = t.Holder()
		infos[key] = info
	}
	var all []LockInfo
	l.queue.Each(func(key string, t *tenure.Tenure, waiting int) {
		if info, ok := infos[key]; ok && tenures[key] == t { // else it became another key's before we looked at it
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
		Fence: s.Fence, Until: s.Until, Lingering: s.Lingering, Degraded: s.Degraded, Staying: s.Staying,
		Batch: s.Batch,
	}
	if s.Holders > 0 {
		info.HeldFor = now.Sub(s.Since)
	}
	if !s.Until.IsZero() {
		info.Turns = s.Handoffs + 1
	}
	if s.Degraded {
		info.Until = time.Time{} // it is always T from now, which says nothing
	}
	return info
}
