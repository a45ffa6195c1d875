package local

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of Enter. When the caller's context ended, it is that context's own error instead.
var (
	// ErrQueueFull: as many callers wait for the key as may.
	ErrQueueFull = errors.New("local queue is full")
	// ErrHopeless: so many stand before the caller that its turn would come too late. It Is also ErrQueueFull.
	ErrHopeless = fmt.Errorf("the wait would be longer than allowed: %w", ErrQueueFull)
	// ErrBusy: somebody has the turn and the caller did not want to wait.
	ErrBusy = errors.New("local turn is taken")
	// ErrTimeout: the caller's deadline has passed.
	ErrTimeout = errors.New("local wait timed out")
	// ErrClosed: the queue has been closed.
	ErrClosed = errors.New("local queue is closed")
)

// Unlimited as Ask.Limit lets any number of callers wait.
const Unlimited = -1

const (
	// shardCount spreads the keys over so many locks that callers of different keys seldom meet, on any machine of
	// today. A power of two.
	shardCount = 64
	// maxSpare bounds the unused entries a shard keeps for reuse.
	maxSpare = 32
	// shrinkAbove is the number of keys after which a map that has become nearly empty, to an eighth, is made anew: a Go
	// map never shrinks.
	shrinkAbove = 512
)

// Queue gives turns, per key, in the order they were asked for. Keys that nobody uses take no memory.
// All methods are safe for concurrent use.
type Queue[B any] struct {
	baton    func(key string, spare B) B
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
	closed  bool

	_ [40]byte // apart from the neighbour's cache line
}

// entry is one key in use: somebody has its turn, waits for it, or has pinned it. All fields are guarded by the shard's
// mutex, except baton, which belongs to whoever has the turn.
type entry[B any] struct {
	shard       *shard[B]
	key         string
	first, last *Turn[B] // the line
	waiting     int      // its length
	exclusive   int      // of these, how many are not shared
	holders     int      // turns given out: 1, or more when shared
	open        bool     // shared callers may come in beside the holders
	pins        int
	baton       B
}

// Ask says how a turn is wanted.
type Ask struct {
	Shared   bool
	NoWait   bool
	Limit    int           // callers that may wait for this key, this one included; Unlimited
	Hopeful  int           // exclusive callers in line from which on the caller does not want to wait; 0: any number
	Deadline time.Time     // zero: none
	Waiting  *atomic.Int64 // counts this caller while it waits; nil: not counted
}

// New returns an empty queue. baton makes the baton of a key that comes into use, from that of a key that nobody uses any
// more or, if there is none to spare, from B's zero value. It must be quick and must not call the queue.
func New[B any](baton func(key string, spare B) B) *Queue[B] {
	q := &Queue[B]{baton: baton, seed: maphash.MakeSeed(), drained: make(chan struct{})}
	q.draining.Store(shardCount)
	for i := range q.shards {
		q.shards[i].queue = q
		q.shards[i].entries = make(map[string]*entry[B])
	}
	return q
}

// Enter waits until t has the turn of key. t must not be in use; it is the caller's own until Enter returns an error, or
// until the turn has been passed on.
//
// When the turn is handed over at the very moment at which ctx or the deadline ends, the turn wins: Enter returns nil,
// and the caller, who has the turn, looks at its context itself and passes the turn on. So a turn is never lost.
func (q *Queue[B]) Enter(ctx context.Context, t *Turn[B], key string, ask Ask) error {
	s := q.shard(key)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	e := s.entry(key)
	t.entry, t.shared, t.ready = e, ask.Shared, nil
	if e.admits(ask.Shared) {
		e.holders++
		t.state = held
		s.mu.Unlock()
		return nil
	}
	if err := e.refuses(ask); err != nil {
		s.mu.Unlock()
		return err
	}
	e.enqueue(t)
	s.mu.Unlock()
	return t.wait(ctx, ask)
}

// Idle takes the turn of a key that is pinned and that nobody has or waits for, also after Close. It reports whether it did.
func (q *Queue[B]) Idle(t *Turn[B], key string) bool {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil || e.holders > 0 {
		return false
	}
	e.holders = 1
	t.entry, t.shared, t.state = e, false, held
	return true
}

// Unpin takes back one Pin of key.
func (q *Queue[B]) Unpin(key string) {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key] // pinned, hence there
	e.pins--
	s.tidy(e)
}

// Each calls f for every key in use, with its baton and the number of callers that wait. Keys that come or go meanwhile
// may be missed; f must not call the queue, and must not change the baton, for it does not have the turn.
func (q *Queue[B]) Each(f func(key string, baton B, waiting int)) {
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		for key, e := range s.entries {
			f(key, e.baton, e.waiting)
		}
		s.mu.Unlock()
	}
}

// Close refuses all new callers and sends those that wait away with ErrClosed. Turns that are held stay so.
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

// entry returns the entry of key, a new one if need be. The caller holds mu.
func (s *shard[B]) entry(key string) *entry[B] {
	e := s.entries[key]
	if e != nil {
		return e
	}
	if n := len(s.spare); n > 0 {
		e, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		e = &entry[B]{shard: s}
	}
	e.key, e.baton = key, s.queue.baton(key, e.baton)
	s.entries[key] = e
	s.peak = max(s.peak, len(s.entries))
	return e
}

// tidy forgets the entry when nothing uses it any more. The caller holds mu.
func (s *shard[B]) tidy(e *entry[B]) {
	if e.holders > 0 || e.waiting > 0 || e.pins > 0 {
		return
	}
	delete(s.entries, e.key)
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

// shrink gives the memory back that many keys have left in the map. The caller holds mu.
func (s *shard[B]) shrink() {
	small := make(map[string]*entry[B], len(s.entries))
	maps.Copy(small, s.entries)
	s.entries, s.peak = small, len(small)
}

// empty notes that a closed shard has no key left: nothing can come any more. The caller holds mu.
func (s *shard[B]) empty() {
	if s.closed && s.queue.draining.Add(-1) == 0 {
		close(s.queue.drained)
	}
}

func (s *shard[B]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, e := range s.entries {
		for e.first != nil {
			e.dequeue(e.first).resolve(refused)
		}
	}
	if len(s.entries) == 0 {
		s.empty()
	}
}

// admits reports whether a newcomer gets the turn at once. Nobody may wait before it.
func (e *entry[B]) admits(shared bool) bool {
	return e.first == nil && (e.holders == 0 || shared && e.open)
}

// refuses says why a newcomer that must wait may not.
func (e *entry[B]) refuses(ask Ask) error {
	switch {
	case ask.NoWait:
		return ErrBusy
	case ask.Limit >= 0 && e.waiting >= ask.Limit:
		return ErrQueueFull
	case ask.Hopeful > 0 && e.exclusive >= ask.Hopeful:
		return ErrHopeless
	}
	return nil
}

// enqueue puts t at the end of the line.
func (e *entry[B]) enqueue(t *Turn[B]) {
	t.before, t.behind = e.last, nil
	if e.last == nil {
		e.first = t
	} else {
		e.last.behind = t
	}
	e.last = t
	e.stand(t)
}

// enqueueFirst puts t at the head of the line.
func (e *entry[B]) enqueueFirst(t *Turn[B]) {
	t.before, t.behind = nil, e.first
	if e.first == nil {
		e.last = t
	} else {
		e.first.before = t
	}
	e.first = t
	e.stand(t)
}

func (e *entry[B]) stand(t *Turn[B]) {
	e.waiting++
	if !t.shared {
		e.exclusive++
	}
	t.state, t.ready = waiting, make(chan struct{}, 1)
}

// dequeue takes t, wherever it stands, out of the line.
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
	if !t.shared {
		e.exclusive--
	}
	return t
}

// admitFirst gives the turn to the first of the line.
func (e *entry[B]) admitFirst() {
	e.holders++
	e.dequeue(e.first).resolve(held)
}

// admitShared lets the shared callers at the head of the line in, up to the first exclusive one.
func (e *entry[B]) admitShared() {
	for e.first != nil && e.first.shared {
		e.admitFirst()
	}
}
