package wllock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/wllock/wllock/internal/tenure"
)

// LockInfo describes one key in use by this Locker at one moment: a caller of this Locker holds the lock or waits for it, or the lease is on the
// way back to the backend. The page of package debug has it as JSON, with these names.
type LockInfo struct {
	Key       string        `json:"key"`              // full name, as WithKeyRedaction shows it
	Mode      string        `json:"mode"`             // "exclusive", "shared" or "permits"
	Permits   int           `json:"permits"`          // the limit of Permits, 0 in another mode
	Waiting   int           `json:"waiting"`          // callers in the local queue
	AtBackend bool          `json:"at_backend"`       // the head of the local queue waits in the backend's queue
	Holders   int           `json:"holders"`          // callers that hold the lock
	HeldFor   time.Duration `json:"held_for_ns"`      // since the first of these holders acquired the lock
	Fence     uint64        `json:"fence,string"`     // the largest fence of these holders. It is text in JSON, where many parsers round numbers beyond 2^53
	Turns     int           `json:"turns"`            // callers served by the running tenure, with permits by all tenures of the key
	Batch     int           `json:"batch"`            // callers of the running batch, 0 if none runs
	Until     time.Time     `json:"until,omitzero"`   // when the lease ends at the earliest, with permits the first lease to end. Zero if there is none
	Lingering bool          `json:"lingering"`        // the lease is idle, and kept for the next local caller
	Holder    string        `json:"holder,omitempty"` // the Locker.Instance that holds the lock, this or another one, or "a detached lock". "" if not known
	Staying   bool          `json:"staying"`          // the function has returned, and the lock stays taken (WithHoldAtLeast)
	Degraded  bool          `json:"degraded"`         // held without a lease, because the backend is or was unreachable (LocalOnly)
}

// Locks returns at most limit keys in use now, ordered by waiters, then by time held. It is for diagnostics: the snapshot visits every key in
// use, and is not atomic across keys.
func (l *Locker) Locks(limit int) []LockInfo {
	tenures := map[lane]*tenure.Tenure{}
	l.queue.Each(func(key string, n int, t *tenure.Tenure, _ int) { tenures[lane{key, n}] = t })
	now := time.Now()
	infos := make(map[lane]LockInfo, len(tenures))
	for at, t := range tenures {
		info := describe(t.Snapshot(), now)
		info.Holder = instanceOf(t.Holder())
		infos[at] = info
	}
	all := map[string]LockInfo{}
	l.queue.Each(func(key string, n int, t *tenure.Tenure, waiting int) {
		info, ok := infos[lane{key, n}]
		if !ok || tenures[lane{key, n}] != t { // it became another key's before we looked at it
			return
		}
		key = lockOf(key)
		if before, ok := all[key]; ok {
			info, waiting = before.beside(info), max(before.Waiting, waiting)
		}
		info.Key, info.Waiting = key, waiting
		all[key] = info
	})
	sorted := slices.SortedFunc(maps.Values(all), func(a, b LockInfo) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key, b.Key))
	})
	sorted = sorted[:min(max(limit, 0), len(sorted))]
	for i := range sorted {
		sorted[i].Key = l.observer.Redaction.Name(sorted[i].Key)
	}
	return sorted
}

// lane is that of a permit, or 0, of a key.
type lane struct {
	key string
	n   int
}

// beside adds a permit to what is known of its key.
func (i LockInfo) beside(permit LockInfo) LockInfo {
	if i.Holders == 0 && permit.Holders > 0 {
		i.Mode = permit.Mode
	}
	if permit.Permits > 0 {
		i.Mode, i.Permits = "permits", max(i.Permits, permit.Permits)
	}
	i.Holders += permit.Holders
	i.HeldFor = max(i.HeldFor, permit.HeldFor)
	i.Fence = max(i.Fence, permit.Fence)
	i.Turns += permit.Turns
	i.AtBackend = i.AtBackend || permit.AtBackend
	i.Lingering = i.Lingering || permit.Lingering
	i.Staying = i.Staying || permit.Staying
	i.Degraded = i.Degraded || permit.Degraded
	i.Holder = cmp.Or(i.Holder, permit.Holder)
	if i.Until.IsZero() || !permit.Until.IsZero() && permit.Until.Before(i.Until) {
		i.Until = permit.Until
	}
	return i
}

func describe(s tenure.Snapshot, now time.Time) LockInfo {
	info := LockInfo{
		Mode: s.Mode.String(), AtBackend: s.AtBackend, Holders: s.Holders,
		Fence: s.Fence, Until: s.Until, Lingering: s.Lingering, Degraded: s.Degraded, Staying: s.Staying,
		Batch: s.Batch, Permits: s.Limit,
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
