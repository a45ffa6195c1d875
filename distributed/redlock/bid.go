package redlock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
)

// attempt is one Enter and what became of it: see package driver.
type attempt = driver.Attempt[claim]

// claim is what we keep of an attempt: the bid that stands for it now.
type claim struct{ bid atomic.Pointer[bid] }

// bid is what one token has at the servers, and what they have said about it. Package driver owns the attempt behind it.
//
//	asking ──a majority of votes──▶ won: the attempt has, or gets, the lease
//	   ├─no majority──▶ waiting ──votes of a majority──▶ won
//	   │                   └─restart──▶ ended: another bid stands for the attempt
//	   └─all──▶ ended: what still comes is removed again
type bid struct {
	b        *Backend
	a        *attempt // nil: nobody's
	in       *space   // of its key's system
	asked    uint64   // the number of its id: when, in microseconds; or later, if another came at that time
	token    string
	instance string // as scripts know it
	keys     []string
	lane     int
	mode     distributed.Mode
	ttl      time.Duration
	noWait   bool
	news     chan struct{} // holds one, of what may decide the round that enters

	mu       sync.Mutex // guards all below; taken before that of the attempt, and never while calling out
	phase    phase
	seats    []seat
	started  time.Time // of the round that enters
	splits   int       // questions about a split vote, without interruption
	repeats  int       // of the question that enters, to servers that have failed
	why      error     // of the majority that has failed and is asked again; nil: none has
	polls    int       // of a foreigner's key, likewise
	lastVote time.Time // when the last vote was noticed

	until   time.Time // of won: until then its votes last, before they are renewed
	vacant  uint64    // set of the servers that have lost our vote and may vote again
	shared  bool      // its votes are, or may be, those of a reader: also after Downgrade has begun
	parting parting
}

type phase uint8

const (
	asking phase = iota
	waiting
	won
	ended
)

func newBid(b *Backend, req distributed.Request) *bid {
	id := b.nextID()
	return &bid{
		b: b, in: b.space(conn.SystemOf(req.Key)), asked: id.Number, token: tokenOf(id, b.process), instance: instanceName(req.Instance),
		keys: keysOf(req.Key), lane: laneOf(req.Key), mode: req.Mode, ttl: req.TTL, noWait: req.NoWait, shared: req.Mode == distributed.Shared,
		news: make(chan struct{}, 1), seats: make([]seat, len(b.nodes)), parting: newParting(len(b.nodes)),
	}
}

// stray is the bid of a token that nobody here waits for any more.
func (b *Backend) stray(token, key string) *bid {
	return &bid{
		b: b, in: b.space(conn.SystemOf(key)), token: token, instance: "-", keys: keysOf(key), lane: laneOf(key), ttl: conn.OrphanTTL,
		phase: ended, seats: make([]seat, len(b.nodes)), parting: newParting(len(b.nodes)),
	}
}

func (a *bid) key() string           { return a.keys[0] }
func (a *bid) window() time.Duration { return distributed.ClaimWindow(a.ttl) }

// letter is the mode of its votes. The caller holds mu.
func (a *bid) letter() string {
	if a.shared {
		return "s"
	}
	return "x"
}

// win takes a majority of votes. The Backend claims what has little of its window left. The caller holds mu.
func (a *bid) win() driver.Standing {
	now, longest := time.Now(), a.longest()
	var since []time.Time
	for i := range a.seats {
		if s := &a.seats[i]; s.counts(now, a.ttl, longest) {
			since = append(since, s.since)
		}
	}
	sent := majoritySince(len(a.seats), since)
	a.phase, a.until = won, distributed.Validity(sent, a.window())
	if slices.ContainsFunc(a.seats, func(s seat) bool { return s.standing.contended }) {
		a.a.Noticed(true) // under mu, so that later notices come after it. There is no lease yet, so nothing is called back
	}
	return driver.Standing{Kind: driver.Granted, Sent: sent, Next: driver.Never}
}

// restart has a bid with a new token stand for the attempt, because a yield was not answered and may be carried out at any time: a vote
// that it takes back must be nobody's. Or a Break has met the bid while it had votes, and its token gets none any more. If it went on without
// that server, it would keep a vote there that it cannot use, and with a few of them nobody could win. The caller holds mu.
func (a *bid) restart() func() {
	h := newBid(a.b, a.a.Request)
	h.a, h.phase, h.started = a.a, waiting, time.Now()
	a.b.bids.Store(h.token, h)
	a.b.bids.Delete(a.token)
	a.phase = ended
	a.a.Wire.bid.Store(h) // under mu: end finds one of the two
	return func() {
		a.depart()
		a.a.Poke()
	}
}

// end notes that the attempt neither asks, waits nor holds any more, and returns the bid that stood for it last.
func end(a *attempt) *bid {
	for {
		one := a.Wire.bid.Load()
		one.mu.Lock()
		last := a.Wire.bid.Load() == one // else it was restarted
		if last {
			one.phase = ended
		}
		one.mu.Unlock()
		if last {
			one.b.bids.Delete(one.token)
			return one
		}
	}
}

// over reports that what the bid has won has ended: the lease, or votes that are not renewed yet.
func (a *bid) over() bool { return distributed.Over(time.Now(), a.lasts()) }

// lasts is up to when the lease is valid, or the votes that are claimed.
func (a *bid) lasts() time.Time {
	if l := a.a.Lease(); l != nil {
		return l.Until()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until
}

// hasEnded reports that a vote that comes now is of no use.
func (a *bid) hasEnded() bool {
	a.mu.Lock()
	phase := a.phase
	a.mu.Unlock()
	return phase == ended || phase == won && a.over()
}

// seat is what a bid knows of itself on one server. Its fields are guarded by bid.mu.
type seat struct {
	vote
	standing standing // the last; kind 0: none yet
	err      error    // of the last question; nil: answered, or under way

	// wanted is when a notice said last that another waits; zero: none has, or nobody does any more. Notices come on a connection of their
	// own, so one may overtake the answer to a question that was sent before it: such an answer does not know of it.
	wanted time.Time
}

// failed: the question was not answered, or refused.
func (s *seat) failed(err error) {
	s.err = err
	if s.missed(); s.standing.kind != 'v' || s.void {
		s.standing.kind = 0
	}
}

// told takes an answer.
func (s *seat) told(now standing, at time.Time) {
	s.err = nil
	if !s.vote.told(now.kind == 'v', now.mode == "b", now.age, now.longest, at) {
		s.standing.contended = s.standing.contended || now.contended
		return
	}
	if s.given() {
		s.since = s.since.Add(-now.short)
	}
	now.contended = now.contended || s.wanted.After(s.last.sent)
	s.standing = now
}

// noticed takes a vote that the server has published. It reports false if the notice is stale.
func (s *seat) noticed(m message, at time.Time) bool {
	if !s.vote.noticed(m.epoch, m.age, m.longest, at) {
		return false
	}
	s.standing = standing{kind: 'v', contended: m.contended, rank: s.standing.rank, rest: s.standing.rest}
	return true
}

// wanted takes a notice that others wait, or that none does any more. Once the bid has won the Backend keeps that: of several servers the
// last word counts, until the next renewal.
func (a *bid) wanted(index int, waits bool) {
	a.mu.Lock()
	has, s := a.phase == won, &a.seats[index]
	if s.standing.contended, s.wanted = waits, (time.Time{}); waits {
		s.wanted = time.Now()
	}
	a.mu.Unlock()
	if has {
		a.a.Noticed(waits)
	}
}
