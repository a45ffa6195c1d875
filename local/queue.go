package local

import (
	"context"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// The errors of Enter. If the caller's context ends, Enter returns that context's error instead.
var (
	// ErrQueueFull: as many callers wait for the key as allowed.
	ErrQueueFull = keyless.Errorf("local queue is full")
	// ErrHopeless: so many callers are ahead that the turn would come too late. It Is also ErrQueueFull.
	ErrHopeless = keyless.Errorf("the wait would be longer than allowed: %w", ErrQueueFull)
	// ErrBusy: the turn is held and the caller did not want to wait.
	ErrBusy = keyless.Errorf("local turn is taken")
	// ErrTimeout: the caller's deadline has passed.
	ErrTimeout = keyless.Errorf("local wait timed out")
	// ErrClosed: the queue has been closed.
	ErrClosed = keyless.Errorf("local queue is closed")
	// ErrBehind: returned by Alone if the permits that are left wait elsewhere, perhaps for the caller.
	ErrBehind = keyless.Errorf("all permits wait elsewhere")
)

// Unlimited, as Ask.Limit, lets any number of callers wait.
const Unlimited = -1

const (
	// shardCount spreads the keys over enough mutexes that callers of different keys rarely contend on today's machines.
	// A power of two.
	shardCount = 64
	// maxSpare bounds the unused entries a shard keeps for reuse.
	maxSpare = 32
	// shrinkAbove is the size from which a map is replaced once it is seven eighths empty: a Go map never shrinks.
	shrinkAbove = 512
)

// Queue grants turns per key, first come, first served. Unused keys take no memory. All methods are safe for concurrent use.
type Queue[B any] struct {
	baton    func(key string, lane int, spare B) B
	seed     maphash.Seed
	draining atomic.Int32  // shards that are not closed, or not empty yet
	drained  chan struct{} // closed when draining reaches 0
	shards   [shardCount]shard[B]
}

type shard[B any] struct {
	queue *Queue[B]

	mu      sync.Mutex // guards the rest, with all entries and turns of these keys
	entries map[string]*entry[B]
	peak    int // most entries since the map was made
	spare   []*entry[B]
	lanes   []*lane[B] // spare ones
	closed  bool

	_ [16]byte // keeps shards on separate cache lines
}

// entry is one key in use: its turn is held, waited for, or pinned. All fields are guarded by the shard's mutex.
type entry[B any] struct {
	shard       *shard[B]
	key         string
	first, last *Turn[B] // the waiters
	waiting     int      // number of waiters
	exclusive   int      // number of waiters that are not shared
	holders     int      // turns of lane 0 held: 1, or more when shared
	open        bool     // shared callers may enter beside the holders
	shares      bool     // the holders of lane 0 are shared
	idle        bool     // the holder of lane 0 is Idle's
	reopens     uint16   // how often Reopen was called
	main        lane[B]  // lane 0

	permits  int           // lanes held
	stages   [4]int32      // how many lanes are at each stage; of unused ones it says nothing
	lanes    []*lane[B]    // those in use, by index
	tickets  uint64        // the last one given
	awaiting []*lane[B]    // those aside whose holders take a fellow's lane, by ticket
	changed  chan struct{} // a lane has another stage: has room for one value; nil: nobody has waited for that
}

// Ask describes the turn that a caller wants.
type Ask struct {
	Shared   bool
	NoWait   bool
	Permits  int32         // how many turns may be held at a time, of which the caller wants one. 0: an exclusive or shared turn
	Limit    int           // callers that may wait for this key, including this one, or Unlimited
	MaxAhead int           // the number of exclusive waiters from which on the caller does not want to wait, 0 for any number
	Deadline time.Time     // zero: none
	Waiting  *atomic.Int64 // counts this caller as long as Limit does, so it never exceeds Limit for a key. nil: not counted
}

// New returns an empty queue. It calls baton for the baton of a lane that comes into use. baton gets the baton of a lane no longer used or, if
// there is none to spare, B's zero value. Lane 0 is that of a key's exclusive and shared callers. Permits have others. baton must be quick and
// must not call the queue.
func New[B any](baton func(key string, lane int, spare B) B) *Queue[B] {
	q := &Queue[B]{baton: baton, seed: maphash.MakeSeed(), drained: make(chan struct{})}
	q.draining.Store(shardCount)
	for i := range q.shards {
		q.shards[i].queue = q
		q.shards[i].entries = make(map[string]*entry[B])
	}
	return q
}

// Enter waits until t has the turn of key. t must not be in use. It must not be used again until Enter has returned an error or the turn has
// been passed on.
//
// If the turn arrives at the moment when ctx or the deadline ends, the turn wins. Enter then returns nil, and the caller has the turn, checks
// its context itself and passes the turn on. So a turn is never lost.
func (q *Queue[B]) Enter(ctx context.Context, t *Turn[B], key string, ask Ask) error {
	s := q.shard(key)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	e := s.entry(key)
	t.lane, t.kind, t.ready, t.early = &e.main, ask.kind(), nil, false
	if e.first == nil && e.admits(t.kind) && !(ask.NoWait && e.early(t.kind)) { // rule L1
		e.admit(t)
		s.mu.Unlock()
		return nil
	}
	if err := e.refuses(ask); err != nil {
		s.mu.Unlock()
		return err
	}
	e.enqueue(t, ask.Waiting)
	s.mu.Unlock()
	return t.wait(ctx, s, ask)
}

// Each calls f for every key in use: for its lane 0, and then for the lanes that its permits use, with their batons and the
// number of waiters of the key. Keys that come or go meanwhile may be missed. f must not call the queue, and must not change
// the baton, because it does not have the turn.
func (q *Queue[B]) Each(f func(key string, lane int, baton B, waiting int)) {
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		for key, e := range s.entries {
			f(key, 0, e.main.baton, e.waiting)
			for _, l := range e.lanes {
				f(key, l.index, l.baton, e.waiting)
			}
		}
		s.mu.Unlock()
	}
}

// Close refuses new callers and ends all waits with ErrClosed. Held turns stay held.
func (q *Queue[B]) Close() {
	for i := range q.shards {
		q.shards[i].close()
	}
}

// Drained is closed when, after Close, the last turn and the last pin are gone.
func (q *Queue[B]) Drained() <-chan struct{} { return q.drained }

func (q *Queue[B]) shard(key string) *shard[B] {
	return &q.shards[maphash.String(q.seed, key)%shardCount]
}

// entry returns the entry of key and creates it if necessary. The caller holds mu.
func (s *shard[B]) entry(key string) *entry[B] {
	e := s.entries[key]
	if e != nil {
		return e
	}
	if n := len(s.spare); n > 0 {
		e, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		e = &entry[B]{shard: s}
		e.main.shard, e.main.entry = s, e
	}
	e.key, e.main.baton = key, s.queue.baton(key, 0, e.main.baton)
	s.entries[key] = e
	s.peak = max(s.peak, len(s.entries))
	return e
}

// tidy removes the entry if nothing uses it any more. The caller holds mu.
func (s *shard[B]) tidy(e *entry[B]) {
	if e.holders > 0 || e.waiting > 0 || e.main.pins > 0 || len(e.lanes) > 0 {
		return
	}
	delete(s.entries, e.key) // rule L4
	if len(s.spare) < maxSpare {
		e.key = ""
		s.spare = append(s.spare, e)
	}
	if s.peak > shrinkAbove && len(s.entries) < s.peak/8 {
		s.shrink()
	}
	if len(s.entries) == 0 {
		s.empty()
	}
}

// shrink frees the memory of a map that once had many keys. The caller holds mu.
func (s *shard[B]) shrink() {
	small := make(map[string]*entry[B], len(s.entries))
	maps.Copy(small, s.entries)
	s.entries, s.peak = small, len(small)
}

// empty notes that a closed shard has no key left; no caller can enter it again. The caller holds mu.
func (s *shard[B]) empty() {
	if s.closed && s.queue.draining.Add(-1) == 0 { // rule L5
		close(s.queue.drained)
	}
}

func (s *shard[B]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true // rule L5
	for _, e := range s.entries {
		for e.first != nil {
			e.dequeue(e.first).resolve(refused)
		}
		e.change()
	}
	if len(s.entries) == 0 {
		s.empty()
	}
}

// admits reports whether the holders let another caller in beside them.
func (e *entry[B]) admits(k kind) bool {
	switch {
	case k.isPermit():
		return e.room(k, e.permits)
	case k == sharing:
		return e.holders == 0 || e.open
	}
	return e.holders == 0
}

// early reports whether a turn that is given now comes while permits are held: see Turn.Alone.
func (e *entry[B]) early(k kind) bool { return k == exclusive && e.permits > 0 } // rule P6

// admit gives a turn to a caller that the holders admit.
func (e *entry[B]) admit(t *Turn[B]) {
	t.state = held
	if t.kind.isPermit() {
		e.permits++
		e.take(t, e.freeLane())
		return
	}
	e.holders++
	e.shares, t.reopens, t.early = t.kind == sharing, e.reopens, e.early(t.kind)
}

// refuses returns why a newcomer that would have to wait is refused, or nil.
func (e *entry[B]) refuses(ask Ask) error {
	switch {
	case e.idle && e.first == nil && (!ask.NoWait || ask.Shared || e.permits == 0): // rule P3: it is free in a moment
		return nil
	case ask.NoWait:
		return ErrBusy
	case ask.Limit >= 0 && e.waiting >= ask.Limit: // rule L2
		return ErrQueueFull
	case ask.MaxAhead > 0 && e.exclusive >= ask.MaxAhead:
		return ErrHopeless
	}
	return nil
}

// enqueue appends t to the queue. counts is changed under the shard's mutex, with the queue: a caller that has its turn and has not run yet
// counts no more, since another one may have come in its room.
func (e *entry[B]) enqueue(t *Turn[B], counts *atomic.Int64) {
	t.before, t.behind = e.last, nil
	if e.last == nil {
		e.first = t
	} else {
		e.last.behind = t
	}
	e.last = t
	e.addWaiter(t, counts)
}

// enqueueFirst puts t at the head of the queue. It is not counted: it has had its turn, as one that waits at the backend has, and has left
// its room in the queue to others.
func (e *entry[B]) enqueueFirst(t *Turn[B]) {
	t.before, t.behind = nil, e.first
	if e.first == nil {
		e.last = t
	} else {
		e.first.before = t
	}
	e.first = t
	e.addWaiter(t, nil)
}

func (e *entry[B]) addWaiter(t *Turn[B], counts *atomic.Int64) {
	e.waiting++
	if t.counts = counts; counts != nil {
		counts.Add(1)
	}
	if t.kind != sharing {
		e.exclusive++
	}
	t.state, t.ready = waiting, make(chan struct{}, 1)
}

// dequeue removes t from the queue, wherever it stands.
func (e *entry[B]) dequeue(t *Turn[B]) *Turn[B] {
	if t.before == nil {
		e.first = t.behind
	} else {
		t.before.behind = t.behind
	}
	if t.behind == nil {
		e.last = t.before
	} else {
		t.behind.before = t.before
	}
	t.before, t.behind = nil, nil
	e.waiting--
	if t.counts != nil {
		t.counts.Add(-1)
		t.counts = nil // what outlives the call keeps the turn, and is not to keep the counter
	}
	if t.kind != sharing {
		e.exclusive--
	}
	return t
}

// admitHeads gives turns to the waiters at the head, up to the first that the holders do not admit: so the head holds up all
// behind it. Whatever may let the head in calls it.
func (e *entry[B]) admitHeads() {
	for e.first != nil && e.admits(e.first.kind) { // rules L1 and P1
		t := e.dequeue(e.first)
		e.admit(t)
		t.resolve(held)
	}
}
