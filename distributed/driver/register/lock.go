package register

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Format is that of the documents: 1, and no number stands in them. A later one begins with "format", which this one refuses.
const Format = 1

// lock is the document of a lock. Its methods are pure.
type lock struct {
	Format int     `json:"format,omitempty"` // what another version writes that keeps locks in another way
	Owners []claim `json:"owners,omitempty"`
	Queue  []claim `json:"queue,omitempty"` // in the order of arrival
}

// claim is one Enter: of an owner, or of one that waits.
type claim struct {
	ID       string        `json:"id"` // random, for one Enter: the ownership
	Instance string        `json:"instance"`
	Shared   bool          `json:"shared,omitempty"`
	Limit    int           `json:"limit,omitempty"` // of a permit
	TTL      time.Duration `json:"ttl"`
	Beat     int           `json:"beat,omitempty"`  // renewals; 0: the grant is not claimed yet
	Again    int           `json:"again,omitempty"` // how often it was queued again: then its beat begins anew
}

// period is how long the claim of an owner lasts after its last beat (rule K5).
func (c claim) period() time.Duration {
	if c.Beat == 0 {
		return distributed.ClaimWindow(c.TTL)
	}
	return c.TTL
}

func index(claims []claim, id string) int {
	return slices.IndexFunc(claims, func(c claim) bool { return c.ID == id })
}

func (l *lock) has(id string) bool { return index(l.Owners, id) >= 0 || index(l.Queue, id) >= 0 }

// take makes c an owner, or queues it unless it has no time. It does nothing if c is there already, since an earlier try of the same
// request was carried out.
func (l *lock) take(c claim, noWait bool) (changed bool) {
	switch {
	case l.has(c.ID):
		return false
	case len(l.Queue) == 0 && l.admits(c):
		l.Owners = append(l.Owners, c)
	case noWait:
		return false
	default:
		l.Queue = append(l.Queue, c)
	}
	return true
}

// admits reports whether the owners admit another beside them: a reader, or a permit while there are fewer than its limit. No two steps
// cross, and whoever is dead is an owner until it is taken out: so there are never more.
func (l *lock) admits(c claim) bool {
	return len(l.Owners) == 0 || c.Shared && l.Owners[0].Shared && (c.Limit == 0 || len(l.Owners) < c.Limit)
}

// remove takes a claim out, and makes those at the head of the queue owners that may be.
func (l *lock) remove(id string) (found bool) {
	found = l.has(id)
	is := func(c claim) bool { return c.ID == id }
	l.Owners, l.Queue = slices.DeleteFunc(l.Owners, is), slices.DeleteFunc(l.Queue, is)
	for len(l.Queue) > 0 && l.admits(l.Queue[0]) {
		l.Owners = append(l.Owners, l.Queue[0])
		l.Queue = l.Queue[1:]
	}
	return found
}

// wanted reports that another instance waits.
func (l *lock) wanted(instance string) bool {
	return slices.ContainsFunc(l.Queue, func(c claim) bool { return c.Instance != instance })
}

// holder names an owner, and says how many more there are.
func (l *lock) holder() string {
	if len(l.Owners) == 0 {
		return ""
	}
	return distributed.HolderText(l.Owners[0].Instance, len(l.Owners)-1)
}

// keep is when the document may be forgotten: T after an owner's last renewal, and another T, so that a service that stands still for less
// forgets nobody.
func (l *lock) keep() time.Duration {
	return 2 * slices.MaxFunc(slices.Concat(l.Owners, l.Queue), func(a, b claim) int { return cmp.Compare(a.TTL, b.TTL) }).TTL
}

func (l *lock) encode() []byte {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

func decode(name string, d Document) (l lock, err error) {
	if d.Version == 0 {
		return l, nil
	}
	err = json.Unmarshal(d.Data, &l) // also where it cannot read all
	switch {
	case l.Format != 0:
		return l, parts.OtherFormat(name, l.Format, Format)
	case err != nil || len(l.Owners) == 0:
		err = keyless.Errorf("the key holds %d bytes that are not a lock", len(d.Data))
		return l, distributed.Unavailable(name, err, distributed.ErrRefused)
	}
	return l, nil
}

// sightings are the beats of the owners as one process has read them, and when it read each first.
type sightings map[string]sighting

type sighting struct {
	claim
	at time.Time // after the reply
}

// reap takes out the owners whose beat has stood still for their period. Their own clocks say so too: the renewal that wrote that beat was
// sent before it was read here, and the drift allowance of their leases covers clocks of different speed (rule K4). If one of them is
// renewed at this moment, the Put that would write its end finds another version.
func (seen sightings) reap(l *lock, now time.Time) (changed bool) {
	maps.DeleteFunc(seen, func(id string, _ sighting) bool { return index(l.Owners, id) < 0 })
	for _, c := range slices.Clone(l.Owners) {
		last, known := seen[c.ID]
		switch {
		case !known || last.claim != c:
			seen[c.ID] = sighting{c, now}
		case now.Sub(last.at) > c.period():
			changed = l.remove(c.ID) || changed
		}
	}
	return changed
}
