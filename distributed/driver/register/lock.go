package register

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Format is that of the documents: 1, and no number stands in them. A later one begins with "format", which this one refuses.
const Format = 1

// lock is the document of a lock. Its methods ask no Store, but reap, by its watchOver.
type lock struct {
	Format int     `json:"format,omitempty"` // what another version writes that keeps locks in another way
	Owners []claim `json:"owners,omitempty"`
	Queue  []claim `json:"queue,omitempty"`  // in the order of arrival
	Fence  uint64  `json:"fence,omitempty"`  // the next
	Broken *broken `json:"broken,omitempty"` // the last Break
	Free   bool    `json:"free,omitempty"`   // it says nothing, and stays since the Store cannot delete it

	reader // who has read it
}

// reader is what a process knows when it reads a document.
type reader struct {
	now    time.Time
	block  uint64 // fences that an owner gets. 0: there are none
	least  uint64 // fence that is given now: the time, where documents may be forgotten
	absent bool   // and the Store will number the document: its first fence is not known before it is written
}

// claim is one Enter: of an owner, or of one that waits.
type claim struct {
	ID       string        `json:"id"` // random, for one Enter: the ownership
	Instance string        `json:"instance"`
	Shared   bool          `json:"shared,omitempty"`
	Limit    int           `json:"limit,omitempty"` // of a permit
	TTL      time.Duration `json:"ttl"`
	Since    int64         `json:"since,omitempty"`   // Unix time in milliseconds, of its grant, or of its request, by the clock of who wrote it. For people
	Beat     int           `json:"beat,omitempty"`    // renewals; 0: the grant is not claimed yet
	Session  string        `json:"session,omitempty"` // vouches for it from now on: its key. See session
	Again    int           `json:"again,omitempty"`   // how often it was queued again: then its beat begins anew
	Fence    uint64        `json:"fence,omitempty"`   // of an owner: the first of its block
}

// broken is the record of a Break.
type broken struct {
	ID     string `json:"id"` // random
	At     int64  `json:"at"` // Unix time in milliseconds, by the clock of who broke it
	By     string `json:"by"`
	Reason string `json:"reason"`
	Holder string `json:"holder"`
	Fence  uint64 `json:"fence,omitempty"`
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

// take makes c an owner, or queues it unless so many wait. It does nothing if c is there already, since an earlier try of the same request
// was carried out.
func (l *lock) take(c claim, most int) (changed bool) {
	switch {
	case l.has(c.ID):
		return false
	case len(l.Queue) == 0 && l.admits(c):
		l.own(c)
	case len(l.Queue) >= most:
		return false
	default:
		c.Since = l.now.UnixMilli()
		l.Queue = append(l.Queue, c)
	}
	return true
}

// own makes c an owner.
func (l *lock) own(c claim) {
	c.Since, c.Fence = l.now.UnixMilli(), l.fences()
	l.Owners = append(l.Owners, c)
}

// fences reserves a block of fences, and returns the first. It is above all that were given before, and where the Store may have
// forgotten these it is at least the time in nanoseconds.
func (l *lock) fences() (first uint64) {
	if l.block == 0 || l.absent {
		return 0
	}
	first = max(l.Fence, l.least)
	l.Fence = first + l.block
	return first
}

// fencesOf returns the block of an owner.
func (l *lock) fencesOf(id string) driver.Block {
	if i := index(l.Owners, id); i >= 0 && l.block > 0 {
		return driver.Block{First: l.Owners[i].Fence, Count: l.block}
	}
	return driver.Block{}
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
	l.admitHeads()
	return found
}

func (l *lock) admitHeads() {
	for len(l.Queue) > 0 && l.admits(l.Queue[0]) {
		l.own(l.Queue[0])
		l.Queue = l.Queue[1:]
	}
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

// breaking returns the record of the last Break, while it is remembered.
func (l *lock) breaking() *distributed.Breaking {
	r := l.Broken
	if r == nil || l.now.Sub(time.UnixMilli(r.At)) > distributed.BrokenMemory {
		return nil
	}
	return &distributed.Breaking{At: time.UnixMilli(r.At), By: r.By, Reason: r.Reason, Holder: r.Holder, Fence: r.Fence}
}

// fenceMemory is how long fences are kept that no number of the Store replaces. Then the time is above them, on any clock that is not
// wrong by a day.
const fenceMemory = 48 * time.Hour

// keep is when the document may be forgotten. T after an owner's last renewal, and another T, so that a service that stands still for less
// forgets nobody. Later, if it has fences, or the record of a Break.
func (l *lock) keep() (d time.Duration) {
	if all := slices.Concat(l.Owners, l.Queue); len(all) > 0 {
		d = 2 * slices.MaxFunc(all, func(a, b claim) int { return cmp.Compare(a.TTL, b.TTL) }).TTL
	}
	if l.breaking() != nil {
		d = max(d, distributed.BrokenMemory)
	}
	if l.least > 0 || slices.ContainsFunc(l.Owners, func(c claim) bool { return c.Session != "" }) {
		d = max(d, fenceMemory)
	}
	return d
}

func (l *lock) encode() []byte {
	if l.breaking() == nil {
		l.Broken = nil
	}
	l.Free = len(l.Owners) == 0 && l.Fence == 0 && l.Broken == nil
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

// decode reads a document.
func (b *Backend) decode(d Document) (l lock, err error) {
	r := reader{now: time.Now()}
	switch {
	case b.forgetful:
	case b.numberer != nil:
		r.block, r.absent = 1<<numbers.Bits, d.Version == ""
	default:
		r.block, r.least = countedBlock, uint64(r.now.UnixNano())
	}
	if d.Version == "" {
		return lock{reader: r}, nil
	}
	err = json.Unmarshal(d.Data, &l) // also where it cannot read all
	l.reader = r
	switch {
	case l.Format != 0:
		return l, parts.OtherFormat(b.name, l.Format, Format)
	case err != nil || len(l.Owners) == 0 && l.Fence == 0 && l.Broken == nil && !l.Free:
		err = keyless.Errorf("the key holds %d bytes that are not a lock", len(d.Data))
		return l, distributed.Unavailable(b.name, err, distributed.ErrRefused)
	}
	return l, b.number(&l, d.Version)
}

// number gives a document the fences that its Store's number allows. One without fences is as it was written first: with one owner, or
// none. All later ones have fences. So the number is that of the first version, whoever reads it.
//
// The document of a later lock begins above: each block was reserved for an owner that came with a write of its own, or by one. So there
// were at least as many numbers since the first as blocks.
func (b *Backend) number(l *lock, v Version) error {
	if b.numberer == nil || b.forgetful || l.Fence > 0 {
		return nil
	}
	n, err := b.numberer.Number(v)
	if err == nil {
		var first driver.Block
		first, err = numbers.Block(n, false)
		l.Fence, l.absent = first.First, false
	}
	if err != nil {
		return distributed.Unavailable(b.name, err, distributed.ErrRefused)
	}
	if len(l.Owners) > 0 {
		l.Owners[0].Fence = l.fences()
	}
	return nil
}

// numbers make fences of a Store's: 2048 of each number, which may be microseconds since 1970.
var numbers = driver.Numbers{Name: "number of a write", Bits: 11}

// countedBlock is how many fences an owner gets where they are the time in nanoseconds.
const countedBlock = 1000

// sightings are the beats of the owners as one process has read them, and when it read each first.
type sightings map[string]sighting

type sighting struct {
	claim
	at time.Time // after the reply
}

// reap takes out the owners whose beat has stood still for their period. Their own clocks say so too: the renewal that wrote that beat was
// sent before it was read here, and the drift allowance of their leases covers clocks of different speed (rule K4). If one of them is
// renewed at this moment, the Put that would write its end finds another version.
func (seen sightings) reap(l *lock, now time.Time, watchOver func(claim) vigil) (changed bool) {
	maps.DeleteFunc(seen, func(id string, _ sighting) bool { return index(l.Owners, id) < 0 })
	for _, c := range slices.Clone(l.Owners) {
		last, known := seen[c.ID]
		over := false
		if c.Session != "" {
			v := watchOver(c)
			last, over = sighting{c, v.since}, v.over
			seen[c.ID] = last
		}
		switch {
		case c.Session == "" && (!known || last.claim != c):
			seen[c.ID] = sighting{c, now}
		case over, c.Session == "" && now.Sub(last.at) > c.period():
			changed = l.remove(c.ID) || changed
		}
	}
	return changed
}
