package sqllock

import (
	"math"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
)

// What is done with a lock when its row is locked: plain functions from one state to the next.

const (
	// fenceBlock is how many fences an exclusive lease takes in advance.
	fenceBlock = 1024
	// nsPerTick makes nanoseconds of the database's time: a fence is never less than those (rule D6).
	nsPerTick = 1000
)

// outcome is what a request has come to.
type outcome uint8

const (
	refusedHeld outcome = iota // NoWait, and somebody is before it
	queuedUp
	granted
	vanished // its place does not exist
)

// answer is the answer to a request.
type answer struct {
	outcome   outcome
	last      int64 // fence of the block
	count     int64 // of the block
	seat      bool  // the lease is a row of the waiters
	contended bool
	prevHeld  bool   // the lease that was released first was the owner's
	holder    string // who keeps it out, if that is known
	sent      time.Time
}

// claim is what a request asks for.
type claim struct {
	name, full string
	token      string
	holder     string // the instance, cut
	mode       distributed.Mode
	ttl        time.Duration
	noWait     bool
	prev       *handle // released first; nil: none
	contended  bool    // others wait, as far as is known
}

// handle is an owner that is to be released.
type handle struct {
	token string
	last  int64 // fence of its block
	drawn int64 // the last one that was drawn
	seat  bool  // it is a row of the waiters: no owner
}

func micros(d time.Duration) int64 { return d.Microseconds() }

// tidy drops what has expired. No right lasts longer than its TTL from its last renewal: one that seems to shows that the
// database's clock has been set back, and is cut (rule D8).
func (s *state) tidy() {
	if s.owner != "" && s.expires <= s.now {
		s.owner, s.dirty = "", true
	}
	if s.owner != "" && s.expires > s.now+s.ttl {
		s.expires, s.dirty = s.now+s.ttl, true
	}
	for i := range s.entries {
		e := &s.entries[i]
		if e.expires > s.now+e.ttl {
			e.expires, e.changed = s.now+e.ttl, true
		}
	}
	s.discard(func(e *entry) bool { return e.expires <= s.now })
}

// discard removes the entries for which gone reports true.
func (s *state) discard(gone func(*entry) bool) (found bool) {
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool {
		is := gone(&e)
		if is {
			s.removed, found = append(s.removed, e.token), true
		}
		return is
	})
	return found
}

func (s *state) find(token string) *entry {
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.token == token })
	if i < 0 {
		return nil
	}
	return &s.entries[i]
}

// count returns how many wait, and how many hold the lock besides the owner.
func (s *state) count() (queued, members int) {
	for _, e := range s.entries {
		if e.holds {
			members++
		}
	}
	return len(s.entries) - members, members
}

// admits reports whether the holders admit another beside them. Members are readers.
func (s *state) admits(mode distributed.Mode) bool {
	_, members := s.count()
	return s.owner == "" && members == 0 || mode == distributed.Shared && (s.owner == "" || s.mode == distributed.Shared)
}

// before counts the live waiters before a ticket that one of this mode cannot pass.
func (s *state) before(ticket int64, mode distributed.Mode) (n int) {
	for _, e := range s.entries {
		if !e.holds && e.ticket < ticket && (mode == distributed.Exclusive || e.mode == distributed.Exclusive) {
			n++
		}
	}
	return n
}

// enter is the whole of Enter. A repeat finds what the first one has done.
func (s *state) enter(c *claim) answer {
	var prevHeld bool
	prior := ""
	if c.prev != nil {
		if prevHeld = s.remove(*c.prev); prevHeld {
			prior = c.prev.token
		}
	}
	s.tidy()
	if a := s.known(c.token); a.outcome != vanished {
		a.prevHeld = prevHeld || c.prev != nil && s.prior == c.prev.token && a.outcome == granted
		s.wake()
		return a
	}
	a := answer{outcome: refusedHeld, prevHeld: prevHeld, holder: s.holders()}
	switch {
	case s.before(math.MaxInt64, distributed.Exclusive) == 0 && s.admits(c.mode):
		a = s.grant(c.token, c.holder, c.mode, micros(c.ttl), prior)
		a.prevHeld = prevHeld
	case !c.noWait:
		s.ticket++
		s.dirty = true
		s.entries = append(s.entries, entry{
			ticket: s.ticket, token: c.token, mode: c.mode, ttl: micros(c.ttl), expires: s.now + micros(c.ttl)/2,
			holder: c.holder, since: s.now, added: true,
		})
		a.outcome = queuedUp
	}
	s.wake()
	return a
}

// holders names those that hold the lock.
func (s *state) holders() string {
	_, members := s.count()
	if s.owner != "" {
		return distributed.HolderText(s.holder, members)
	}
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.holds })
	if i < 0 {
		return ""
	}
	return distributed.HolderText(s.entries[i].holder, members-1)
}

// known returns what an attempt has got already. It is asked for again because the answer was lost, so its claim window
// begins anew: who asks counts from now.
func (s *state) known(token string) answer {
	if s.owner == token {
		s.expires, s.dirty = max(s.expires, s.now+s.ttl/2), true
		return s.owned()
	}
	e := s.find(token)
	switch {
	case e == nil:
		return answer{outcome: vanished}
	case e.holds:
		e.expires, e.changed = max(e.expires, s.now+e.ttl/2), true
		return answer{outcome: granted, last: e.fence, count: 1, seat: true, contended: s.contended()}
	}
	return answer{outcome: queuedUp, holder: s.holders()}
}

func (s *state) owned() answer {
	a := answer{outcome: granted, last: s.fence, count: fenceBlock, contended: s.contended()}
	if s.mode == distributed.Shared {
		a.count = 1
	}
	return a
}

func (s *state) contended() bool {
	queued, _ := s.count()
	return queued > 0
}

// grant makes the token a holder: the owner, or one more reader beside.
func (s *state) grant(token, holder string, mode distributed.Mode, ttl int64, prior string) answer {
	count := int64(fenceBlock)
	if mode == distributed.Shared {
		count = 1
	}
	s.fence = max(s.fence, s.now*nsPerTick) + count
	s.dirty = true
	expires := s.now + ttl/2
	if s.owner == "" {
		s.owner, s.prior, s.mode, s.ttl, s.expires, s.holder, s.since = token, prior, mode, ttl, expires, holder, s.now
		return s.owned()
	}
	s.ticket++
	s.entries = append(s.entries, entry{
		ticket: s.ticket, token: token, mode: mode, holds: true, ttl: ttl, fence: s.fence, expires: expires,
		holder: holder, since: s.now, added: true,
	})
	return s.known(token)
}

// take gives the lock to a waiter if it is its turn: nobody who lives is before it, or only readers are before a reader (rule D3).
func (s *state) take(token string) answer {
	s.tidy()
	e := s.find(token)
	if e == nil || e.holds {
		return s.known(token)
	}
	if s.before(e.ticket, e.mode) > 0 || !s.admits(e.mode) {
		return answer{outcome: queuedUp}
	}
	holder, mode, ttl := e.holder, e.mode, e.ttl
	if s.owner != "" { // a reader beside others keeps its row
		s.fence = max(s.fence, s.now*nsPerTick) + 1
		e.holds, e.fence, e.expires, e.since, e.changed, s.dirty = true, s.fence, s.now+ttl/2, s.now, true, true
		return s.known(token)
	}
	s.discard(func(e *entry) bool { return e.token == token })
	return s.grant(token, holder, mode, ttl, "")
}

// remove removes a token, whatever it has, and returns the rest of its fences if nobody has had any since.
func (s *state) remove(h handle) (held bool) {
	if s.owner == h.token {
		s.owner, s.dirty = "", true
		if s.fence == h.last {
			s.fence = h.drawn
		}
		return true
	}
	return s.discard(func(e *entry) bool { return e.token == h.token })
}

// refill reserves another block.
func (s *state) refill(token string) answer {
	if s.owner != token {
		return answer{outcome: vanished}
	}
	s.fence, s.dirty = max(s.fence, s.now*nsPerTick)+fenceBlock, true
	return s.owned()
}

// downgrade makes the owner a reader, with one fence above its block. The rest of that is dropped: it may be drawn from until
// the answer is there.
func (s *state) downgrade(token string) answer {
	if s.owner != token {
		return answer{outcome: vanished}
	}
	if s.mode == distributed.Exclusive {
		s.fence, s.mode, s.dirty = max(s.fence, s.now*nsPerTick)+1, distributed.Shared, true
	}
	s.wake()
	return s.owned()
}

// wake notes who may enter now, and whose lease somebody waits for.
func (s *state) wake() {
	waiting, writer := false, false
	for _, e := range s.entries {
		if e.holds {
			continue
		}
		waiting = true
		if s.admits(e.mode) && !writer && (e.mode == distributed.Shared || s.before(e.ticket, e.mode) == 0) {
			s.woken = append(s.woken, e.token)
		}
		writer = writer || e.mode == distributed.Exclusive
	}
	if !waiting {
		return
	}
	if s.owner != "" {
		s.woken = append(s.woken, s.owner)
	}
	for _, e := range s.entries {
		if e.holds {
			s.woken = append(s.woken, e.token)
		}
	}
}
