package sqllock

import (
	"math"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

// What is done with a lock when its row is locked: plain functions from one state to the next.

const (
	// fenceBlock is how many fences an exclusive lease, or a permit, takes in advance.
	fenceBlock = 1024
	// nsPerTick makes nanoseconds of the database's time: a fence is never less than those (rule D6).
	nsPerTick = 1000
)

// outcome is what a request has come to.
type outcome uint8

const (
	refusedHeld outcome = iota // it does not queue behind those that are before it
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
	ahead     int    // waiters before it
	sent      time.Time
}

// fences are those of the answer.
func (a answer) fences() driver.Block {
	return driver.Block{First: uint64(a.last - a.count + 1), Count: uint64(a.count)}
}

// claim is what a request asks for.
type claim struct {
	name, full string
	token      string
	holder     string // the instance, cut
	mode       distributed.Mode
	limit      int // of a permit: how many may share the lock with it, itself included; 0: any
	ttl        time.Duration
	noWait     bool
	queueMost  int     // behind how many it does not queue; 0: any number
	prev       *handle // released first; nil: none
	released   bool    // a transaction has done that, perhaps in vain
	unanswered bool    // a try may be carried out late: its grant may come after the end of that of another try, and of others' leases
	contended  bool    // others wait, as far as is known, so one statement is in vain; or a transaction was tried, of which it knows nothing
}

// count is how many fences the request takes in advance: one for all callers of a reader, else a block.
func (c *claim) count() int64 {
	if c.mode == distributed.Shared && c.limit == 0 {
		return 1
	}
	return fenceBlock
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

// admits reports whether the holders admit another beside them, whatever its limit. Members are readers.
func (s *state) admits(mode distributed.Mode) bool {
	_, members := s.count()
	return s.owner == "" && members == 0 || mode == distributed.Shared && (s.owner == "" || s.mode == distributed.Shared)
}

// line goes along the queue, from its head, and tells of each whether it may take the lock now.
type line struct {
	s        *state
	held     int // shared leases
	ahead    int
	writer   bool // one is ahead
	tightest int  // limit so far
}

func (s *state) line() line {
	_, held := s.count()
	if s.owner != "" && s.mode == distributed.Shared {
		held++
	}
	return line{s: s, held: held, tightest: math.MaxInt}
}

// turn reports whether the next in line may take the lock (rules D3, D11). Nobody passes a writer, or is let in where one that is ahead with a limit
// could no longer be: each of those finds a seat, also if it comes later to take it.
func (l *line) turn(mode distributed.Mode, limit int) (is bool) {
	switch {
	case l.writer:
	case mode == distributed.Exclusive:
		is, l.writer = l.ahead == 0 && l.s.admits(mode), true
	default:
		if limit > 0 {
			l.tightest = min(l.tightest, limit)
		}
		is = l.s.admits(mode) && l.held+l.ahead < l.tightest
	}
	l.ahead++
	return is
}

// mayTake reports whether it is a waiter's turn.
func (s *state) mayTake(token string) bool {
	l := s.line()
	for _, e := range s.entries {
		if e.holds {
			continue
		}
		if is := l.turn(e.mode, e.limit); e.token == token {
			return is
		}
	}
	return false
}

// isFree reports whether a request that is not queued is granted the lock at once.
func (s *state) isFree(c *claim) bool {
	l := s.line()
	return !s.contended() && l.turn(c.mode, c.limit)
}

// reserve takes the next fences. The last one is s.fence then.
func (s *state) reserve(count int64) {
	s.fence, s.dirty = max(s.fence, s.now*nsPerTick)+count, true
}

// enter is the whole of Enter. A repeat finds what the first one has done; that it has released prev is in the claim.
func (s *state) enter(c *claim) answer {
	prevHeld := c.prev != nil && s.remove(*c.prev)
	s.tidy()
	if a := s.known(c); a.outcome != vanished {
		a.prevHeld = prevHeld
		s.wake()
		return a
	}
	a := answer{outcome: refusedHeld, prevHeld: prevHeld, holder: s.holders()}
	switch {
	case s.isFree(c):
		a = s.grant(c)
		a.prevHeld = prevHeld
	case !c.noWait && (c.queueMost == 0 || s.waiters() < c.queueMost):
		a.outcome, a.ahead = queuedUp, s.ahead(c)
		s.ticket++
		s.dirty = true
		s.entries = append(s.entries, entry{
			ticket: s.ticket, token: c.token, mode: c.mode, limit: c.limit, ttl: micros(c.ttl), expires: s.now + micros(c.ttl)/2,
			holder: c.holder, since: s.now, added: true,
		})
	}
	s.wake()
	return a
}

// ahead is how many waiters one that comes now stands behind; for a reader without limits, how many writers: see Backend.mayTake.
func (s *state) ahead(c *claim) int {
	all, writers, inTurn := 0, 0, c.mode == distributed.Exclusive || c.limit > 0
	for _, e := range s.entries {
		if e.holds {
			continue
		}
		all++
		inTurn = inTurn || e.limit > 0
		if e.mode == distributed.Exclusive {
			writers++
		}
	}
	if inTurn {
		return all
	}
	return writers
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
// begins anew: who asks counts from now. The row keeps the fences of a shared owner no longer if others have had some since; so it gets
// new ones, and no other has the same.
func (s *state) known(c *claim) answer {
	if s.owner == c.token {
		s.expires, s.dirty = max(s.expires, s.now+s.ttl/2), true
		if s.mode == distributed.Shared {
			s.reserve(c.count())
		}
		return s.owned(c.count())
	}
	e := s.find(c.token)
	switch {
	case e == nil:
		return answer{outcome: vanished}
	case e.holds:
		e.expires, e.changed = max(e.expires, s.now+e.ttl/2), true
		return answer{outcome: granted, last: e.fence + c.count() - 1, count: c.count(), seat: true, contended: s.contended()}
	}
	return answer{outcome: queuedUp, holder: s.holders()}
}

// owned is the answer for the owner that has the last fences.
func (s *state) owned(count int64) answer {
	return answer{outcome: granted, last: s.fence, count: count, contended: s.contended()}
}

func (s *state) contended() bool { return s.waiters() > 0 }

func (s *state) waiters() int {
	queued, _ := s.count()
	return queued
}

// grant makes the request a holder: the owner, or one more that shares the lock with it.
func (s *state) grant(c *claim) answer {
	s.reserve(c.count())
	expires := s.now + micros(c.ttl)/2
	if s.owner == "" {
		s.owner, s.mode, s.ttl, s.expires, s.holder, s.since = c.token, c.mode, micros(c.ttl), expires, c.holder, s.now
		return s.owned(c.count())
	}
	s.ticket++
	s.entries = append(s.entries, entry{
		ticket: s.ticket, token: c.token, mode: c.mode, holds: true, ttl: micros(c.ttl), fence: s.fence - c.count() + 1, expires: expires,
		holder: c.holder, since: s.now, added: true,
	})
	return s.known(c)
}

// take gives the lock to a waiter if it is its turn: nobody who lives is before it, or only readers are before a reader (rule D3), and
// the limits of both are kept (rule D11).
func (s *state) take(c *claim) answer {
	s.tidy()
	e := s.find(c.token)
	if e == nil || e.holds {
		return s.known(c)
	}
	if !s.mayTake(c.token) {
		return answer{outcome: queuedUp}
	}
	if s.owner != "" { // one that shares the lock keeps its row
		s.reserve(c.count())
		e.holds, e.fence, e.expires, e.since, e.changed = true, s.fence-c.count()+1, s.now+e.ttl/2, s.now, true
		return s.known(c)
	}
	s.discard(func(e *entry) bool { return e.token == c.token })
	return s.grant(c)
}

// remove removes a token, whatever it has, and returns the rest of its fences if nobody has had any since.
func (s *state) remove(h handle) (held bool) {
	if held = s.owner == h.token; held {
		s.owner = ""
	} else {
		held = s.discard(func(e *entry) bool { return e.token == h.token })
	}
	if held && s.fence == h.last {
		s.fence = h.drawn
	}
	s.dirty = s.dirty || held
	return held
}

// transfer gives the lock from its owner to another, with new fences and for so long (rule D15). A repeat finds that it was done.
func (s *state) transfer(from handle, to *claim, lasts time.Duration) answer {
	s.tidy()
	if s.owner != from.token || s.mode != distributed.Exclusive { // the answer to a downgrade was lost: it expires
		return s.known(to)
	}
	s.remove(from)
	got := s.grant(to)
	s.expires = s.now + micros(lasts)
	return got
}

// refill reserves another block, for the owner or another permit.
func (s *state) refill(token string) answer {
	if e := s.find(token); s.owner != token && (e == nil || !e.holds) {
		return answer{outcome: vanished}
	}
	s.reserve(fenceBlock)
	return s.owned(fenceBlock)
}

// downgrade makes the owner a reader, with one fence above its block. The rest of that is dropped: it may be drawn from until
// the answer is there. A repeat gets a new one, for others may have had fences since.
func (s *state) downgrade(token string) answer {
	if s.owner != token {
		return answer{outcome: vanished}
	}
	s.mode = distributed.Shared
	s.reserve(1)
	s.wake()
	return s.owned(1)
}

// wake notes who may enter now, and whose lease somebody waits for.
func (s *state) wake() {
	l := s.line()
	for _, e := range s.entries {
		if !e.holds && l.turn(e.mode, e.limit) {
			s.woken = append(s.woken, e.token)
		}
	}
	if l.ahead == 0 {
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
