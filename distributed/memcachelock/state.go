package memcachelock

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
)

// state is a lock's item. Its methods are pure; try gives it to them and writes it back.
type state struct {
	Owners []claim `json:"owners,omitempty"`
	Queue  []claim `json:"queue,omitempty"` // in the order of arrival
}

// claim is one Enter: of an owner, or of one that waits.
type claim struct {
	ID       string        `json:"id"` // random, for one Enter: the ownership; of a permit with its limit behind a slash
	Instance string        `json:"instance"`
	Shared   bool          `json:"shared,omitempty"`
	TTL      time.Duration `json:"ttl"`
	Beat     int           `json:"beat,omitempty"` // renewals; 0: the grant is not claimed yet
}

// newClaim is one for a request. A permit's limit is in the ID, and it is not Shared: so a process of a version without permits, which
// reads and writes the state as a whole, keeps the limit, and takes the permit for a writer. It grants fewer then, and never too many.
func newClaim(req distributed.Request) claim {
	c := claim{ID: rand.Text(), Instance: req.Instance, Shared: req.Mode == distributed.Shared && req.Limit == 0, TTL: req.TTL}
	if req.Limit > 0 {
		c.ID += "/" + strconv.Itoa(req.Limit)
	}
	return c
}

// limit is that of a permit; 0: it is none.
func (c claim) limit() int {
	_, text, _ := strings.Cut(c.ID, "/")
	limit, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return limit
}

func (c claim) shares() bool { return c.Shared || c.limit() > 0 }

// period is how long the claim of an owner lasts after its last beat.
func (c claim) period() time.Duration {
	if c.Beat == 0 {
		return distributed.ClaimWindow(c.TTL)
	}
	return c.TTL
}

func index(claims []claim, id string) int {
	return slices.IndexFunc(claims, func(c claim) bool { return c.ID == id })
}

// take makes c an owner, or queues it unless it has no time. It does nothing if c is in the state already, since an earlier
// try of the same request has been carried out.
func (s *state) take(c claim, noWait bool) (changed bool) {
	switch {
	case index(s.Owners, c.ID) >= 0 || index(s.Queue, c.ID) >= 0:
		return false
	case len(s.Queue) == 0 && s.admits(c):
		s.Owners = append(s.Owners, c)
	case noWait:
		return false
	default:
		s.Queue = append(s.Queue, c)
	}
	return true
}

// admits reports whether the owners admit another beside them: a reader, or a permit while there are fewer than its limit. No two steps
// cross, and whoever is dead is an owner until it is taken out: so there are never more.
func (s *state) admits(c claim) bool {
	if len(s.Owners) == 0 {
		return true
	}
	limit := c.limit()
	return c.shares() && s.Owners[0].shares() && (limit == 0 || len(s.Owners) < limit)
}

// remove takes a claim out, and makes those at the head of the queue owners that may be.
func (s *state) remove(id string) (found bool) {
	before := len(s.Owners) + len(s.Queue)
	is := func(c claim) bool { return c.ID == id }
	s.Owners, s.Queue = slices.DeleteFunc(s.Owners, is), slices.DeleteFunc(s.Queue, is)
	found = len(s.Owners)+len(s.Queue) < before
	for len(s.Queue) > 0 && s.admits(s.Queue[0]) {
		s.Owners = append(s.Owners, s.Queue[0])
		s.Queue = s.Queue[1:]
	}
	return found
}

// withdraw takes a claim out after a request of it that was not answered. It changes an item that lacks the claim, too: that request may be
// on its way, and would find the item as it was read.
func (s *state) withdraw(id string) bool { return s.remove(id) || len(s.Owners) > 0 }

// wanted reports that another instance waits.
func (s *state) wanted(instance string) bool {
	return slices.ContainsFunc(s.Queue, func(c claim) bool { return c.Instance != instance })
}

// maxTTL keeps an item's expiry below 30 days; beyond them memcached takes it for a date.
const maxTTL = 14 * 24 * time.Hour

// encode returns the item's value and its expiry in seconds: T after an owner's last renewal; another T, so that a server that
// stands still for less forgets nobody; and 2 s, since memcached's seconds end when its timer ticks, and may be skipped. An expiry
// in the past removes the item: nobody has the lock.
func (s *state) encode() (text []byte, expiry int32) {
	longest, seconds := time.Duration(0), -1
	for _, c := range slices.Concat(s.Owners, s.Queue) {
		longest = max(longest, c.TTL)
		seconds = int((2*longest+time.Second-1)/time.Second) + 2
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return text, int32(seconds)
}

func decode(item *memcache.Item) (s state, err error) {
	if item.Value == nil {
		return s, nil // missing
	}
	if item.CasID == 0 {
		return s, errors.New("the server runs without cas (-C)")
	}
	if err = json.Unmarshal(item.Value, &s); err != nil || len(s.Owners) == 0 {
		return s, fmt.Errorf("the item holds %d bytes of something else than a lock", len(item.Value))
	}
	return s, nil
}

const (
	maxKey = 250 // bytes, of memcached
	plain  = "wllock:"
	hashed = "wllock#"
)

// itemKey is the key of a lock's item: behind a prefix, since a cache may use the same server, the lock's own, or its hash
// where memcached allows no such key.
func itemKey(key string) string {
	refused := func(r rune) bool { return r <= ' ' || r == 0x7f }
	if len(plain+key) <= maxKey && !strings.ContainsFunc(key, refused) {
		return plain + key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + hex.EncodeToString(sum[:])
}

// sightings are the beats of the owners as one waiter has read them, and when it read each first.
type sightings map[string]sighting

type sighting struct {
	beat   int
	at     time.Time // after the reply
	period time.Duration
}

// reap takes out the owners whose beat has stood still for their period. Their own clocks say so too: the renewal that wrote
// that beat was sent before it was read here, and the drift allowance of their leases covers clocks of different speed (rule K4).
// If one of them is renewed at this moment, the cas that would write its end fails.
func (seen sightings) reap(s *state, now time.Time) (changed bool) {
	for id := range seen {
		if index(s.Owners, id) < 0 {
			delete(seen, id)
		}
	}
	for _, c := range slices.Clone(s.Owners) {
		last, known := seen[c.ID]
		switch {
		case !known || last.beat != c.Beat:
			seen[c.ID] = sighting{c.Beat, now, c.period()}
		case now.Sub(last.at) > last.period:
			changed = s.remove(c.ID)
		}
	}
	return changed
}
