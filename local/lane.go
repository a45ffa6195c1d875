package local

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"
)

// kind says what turn a caller wants: an exclusive one, a shared one, or one of so many permits.
type kind int32

const (
	exclusive kind = 0
	sharing   kind = -1
	idling    kind = -2 // of Queue.Idle
)

func (k kind) isPermit() bool { return k > 0 }

func (a *Ask) kind() kind {
	switch {
	case a.Permits > 0:
		return kind(a.Permits)
	case a.Shared:
		return sharing
	}
	return exclusive
}

// lane is what one permit holds: a turn beside others, with a baton of its own. Lane 0 of a key is that of its exclusive and
// shared callers. A lane is in use as long as it has a holder or is pinned; then it goes to the shard's spare ones.
//
// What the baton of a lane has may be used again before the next in line needs it. So who waits elsewhere for the like may get it first:
//
//	fellow: lane 1, and what it needs      caller: lane 2, waits elsewhere (Await)      first in line
//	  │ Offer ── lane 1 ──────────────────▶ │ Received: it has both lanes                 │
//	  gone                                  │ Swap: works in lane 1                       │
//	                                        │ Pass ── lane 2, whose wait goes on ───────▶ │ waits there
//
// If lane 1 does not serve the caller after all, or its wait has ended otherwise, it keeps lane 2 and passes lane 1 on.
type lane[B any] struct {
	shard *shard[B] // never changes
	index int
	baton B // belongs to the holder of the turn

	// Guarded by the shard's mutex:
	entry *entry[B]
	pins  int
	stage stage

	// Of permits, guarded by the shard's mutex as well:
	holder *Turn[B]
	ticket uint64        // grows with each caller that got a lane: the order in which they came
	passed *lane[B]      // handed over by a fellow, and not received yet
	called chan struct{} // receives one value when passed is set; kept with the lane
}

// stage is what the holder of a permit does with its lane.
type stage uint8

const (
	unused stage = iota // there is none
	coming              // it has got the lane, and is on its way to work, or to wait elsewhere
	aside               // it waits elsewhere for what the baton lacks
	atWork              // or it comes back from there
)

// room reports whether a permit of this kind may be held beside so many others, and the sharers of lane 0, which count as
// one: they have one lease.
func (e *entry[B]) room(k kind, others int) bool { // rule P1
	switch {
	case e.holders == 0 || e.idle:
	case !e.shares:
		return false
	default:
		others++
	}
	return others < int(k)
}

// succeeds reports whether t could take lane 0 when its last holder leaves; t may be nil.
func (e *entry[B]) succeeds(t *Turn[B]) bool { return t != nil && !t.kind.isPermit() }

// lane returns a lane in use.
func (e *entry[B]) lane(index int) *lane[B] {
	if index == 0 {
		return &e.main
	}
	i, _ := e.find(index)
	return e.lanes[i]
}

func (e *entry[B]) find(index int) (int, bool) {
	return slices.BinarySearchFunc(e.lanes, index, func(l *lane[B], index int) int { return cmp.Compare(l.index, index) })
}

// take makes t the holder of a lane.
func (e *entry[B]) take(t *Turn[B], l *lane[B]) {
	e.tickets++
	t.lane, l.holder, l.ticket = l, t, e.tickets
	if t.kind.isPermit() {
		l.become(coming)
	}
}

// freeLane returns a lane without a holder: one that is pinned, since its baton may still have something at hand, or that of
// the lowest index that is not in use.
func (e *entry[B]) freeLane() *lane[B] {
	if e.permits <= len(e.lanes) { // the caller has counted itself
		for _, l := range e.lanes {
			if l.holder == nil {
				return l
			}
		}
	}
	at := sort.Search(len(e.lanes), func(i int) bool { return e.lanes[i].index != i+1 }) // the first gap
	l := e.shard.spareLane()
	l.entry, l.index = e, at+1
	l.baton = e.shard.queue.baton(e.key, l.index, l.baton)
	e.lanes = slices.Insert(e.lanes, at, l)
	return l
}

func (s *shard[B]) spareLane() *lane[B] {
	n := len(s.lanes)
	if n == 0 {
		return &lane[B]{shard: s}
	}
	l := s.lanes[n-1]
	s.lanes = s.lanes[:n-1]
	return l
}

// tidyLane removes a lane that nothing uses any more, except lane 0, which goes with its entry.
func (s *shard[B]) tidyLane(l *lane[B]) {
	if l.index == 0 || l.holder != nil || l.pins > 0 {
		return
	}
	e := l.entry
	i, _ := e.find(l.index)
	e.lanes = slices.Delete(e.lanes, i, i+1) // rule L4
	if l.entry = nil; len(s.lanes) < maxSpare {
		s.lanes = append(s.lanes, l)
	}
}

// dropLane takes its lane from t.
func (e *entry[B]) dropLane(t *Turn[B]) {
	if t.kind.isPermit() {
		e.permits--
		t.lane.become(unused)
	}
	t.lane.holder = nil
	e.shard.tidyLane(t.lane)
}

// passLane hands the lane of t to the first waiter, if that is a permit and its own limit admits it in the place of t.
func (e *entry[B]) passLane(t *Turn[B]) bool {
	first := e.first
	if first == nil || !first.kind.isPermit() || !e.room(first.kind, e.permits-1) { // rule P1
		return false
	}
	t.state = gone
	e.take(e.dequeue(first), t.lane)
	first.resolve(held)
	e.admitHeads() // first may have held up others, with larger limits
	return true
}

// Idle takes the turn of a lane that is pinned and has no holder, also after Close. It reports whether it did. End the turn at once, because
// callers that would not wait elsewhere wait for that.
func (q *Queue[B]) Idle(t *Turn[B], key string, lane int) bool {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return false
	}
	if lane > 0 {
		return e.takeIdle(t, lane)
	}
	if e.holders > 0 {
		return false
	}
	t.lane, t.kind = &e.main, idling
	e.admit(t)
	e.idle = true
	return true
}

// Unpin takes back one Pin of a lane.
func (q *Queue[B]) Unpin(key string, lane int) {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key] // pinned, hence there
	l := e.lane(lane)
	l.pins--
	s.tidyLane(l)
	s.tidy(e)
}

// takeIdle takes the turn of a lane that has no holder. It is no permit, and keeps nobody out.
func (e *entry[B]) takeIdle(t *Turn[B], index int) bool {
	i, found := e.find(index)
	if !found || e.lanes[i].holder != nil {
		return false
	}
	t.kind, t.state = idling, held
	e.take(t, e.lanes[i])
	return true
}

// Others returns the batons of all lanes of a key but one, as far as they have a holder or are pinned.
func (q *Queue[B]) Others(key string, than int) (all []B) {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return nil
	}
	if than != 0 && (e.holders > 0 || e.main.pins > 0) {
		all = append(all, e.main.baton)
	}
	for _, l := range e.lanes {
		if l.index != than {
			all = append(all, l.baton)
		}
	}
	return all
}

// Batons appends to all the batons of a key in use: of lane 0, and of the lanes that its permits use. It appends none if the key is not in use.
func (q *Queue[B]) Batons(all []B, key string) []B {
	s := q.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return all
	}
	all = append(all, e.main.baton)
	for _, l := range e.lanes {
		all = append(all, l.baton)
	}
	return all
}

// Lane returns the index of the lane that the holder of a permit has, 0 for other turns.
func (t *Turn[B]) Lane() int { return t.lane.index }

// Permits returns the limit of a permit: how many are held at a time. 0: the turn is not a permit.
func (t *Turn[B]) Permits() int { return int(max(t.kind, 0)) }

// Beside returns how many permits of the key are held, t included.
func (t *Turn[B]) Beside() int {
	s := t.lock()
	if s == nil {
		return 1
	}
	defer s.mu.Unlock()
	return t.lane.entry.permits
}

// lockPermit is lock for the holder of a permit; nil for others.
func (t *Turn[B]) lockPermit() *shard[B] {
	s := t.lock()
	if s != nil && !t.kind.isPermit() {
		s.mu.Unlock()
		return nil
	}
	return s
}

// Early reports whether the exclusive turn was given while permits of the key are held. Its holder may ask elsewhere for what its baton lacks,
// and so be known there, but must call Alone before it works.
func (t *Turn[B]) Early() bool { return t.early }

// Follow returns when each permit before an early turn is at work, or waits elsewhere, where it is then before the caller. The errors are those
// of Alone.
func (t *Turn[B]) Follow(ctx context.Context, deadline time.Time) error { // rule P6
	return t.watch(ctx, deadline, func(e *entry[B]) (bool, error) { return e.stages[coming] == 0, nil })
}

// Alone returns when no permits are held beside an exclusive turn. No new permits come, because they wait for that turn. ErrBehind: all permits
// that are held wait elsewhere, so if the caller has there what they wait for, it has to give way. ErrClosed, ErrTimeout and the error of ctx
// are as with Enter. After an error the caller still has the turn.
func (t *Turn[B]) Alone(ctx context.Context, deadline time.Time) error { // rule P6
	return t.watch(ctx, deadline, func(e *entry[B]) (bool, error) {
		if e.permits > 0 && e.permits == int(e.stages[aside]) {
			return false, ErrBehind
		}
		return e.permits == 0, nil
	})
}

// watch returns when done does, for the holder of an exclusive turn. done is called with the mutex held, again when a permit has changed.
func (t *Turn[B]) watch(ctx context.Context, deadline time.Time, done func(*entry[B]) (bool, error)) error {
	for {
		s := t.lock()
		if s == nil {
			return ErrClosed // never: nobody takes a turn from a caller that has not begun to use it
		}
		e := t.lane.entry
		is, err := done(e)
		switch {
		case is || err != nil:
		case s.closed:
			err = ErrClosed
		case e.changed == nil:
			e.changed = make(chan struct{}, 1)
		}
		changed := e.changed
		s.mu.Unlock()
		if is || err != nil {
			return err
		}
		if err := until(ctx, changed, deadline); err != nil {
			return err
		}
	}
}

// change has the caller of watch look again.
func (e *entry[B]) change() {
	if e.changed == nil {
		return // nobody has waited yet
	}
	select {
	case e.changed <- struct{}{}:
	default: // it has yet to look
	}
}

// Arrived says that the holder of a permit is at work with the baton as it found it.
func (t *Turn[B]) Arrived() {
	if s := t.lockPermit(); s != nil {
		t.lane.become(atWork)
		s.mu.Unlock()
	}
}

// Aside says that the holder of a permit waits elsewhere for what the baton of its lane lacks. Received must follow, however the wait ends.
func (t *Turn[B]) Aside() {
	if s := t.lockPermit(); s != nil {
		t.lane.become(aside)
		s.mu.Unlock()
	}
}

func (l *lane[B]) become(s stage) {
	e := l.entry
	e.stages[l.stage]--
	e.stages[s]++
	l.stage = s
	e.change()
}

// Await is Aside for a caller that also accepts the lane of another permit. The channel receives a value when the holder of another permit has
// handed over a lane: see Offer. Received must follow, however the wait ends.
func (t *Turn[B]) Await() <-chan struct{} {
	s := t.lockPermit()
	if s == nil {
		return nil
	}
	defer s.mu.Unlock()
	e, l := t.lane.entry, t.lane
	l.become(aside)
	if l.called == nil {
		l.called = make(chan struct{}, 1)
	}
	if i, found := e.awaits(l); !found && l.passed == nil { // else it waits on
		e.awaiting = slices.Insert(e.awaiting, i, l)
	}
	return l.called
}

func (e *entry[B]) awaits(l *lane[B]) (int, bool) {
	return slices.BinarySearchFunc(e.awaiting, l.ticket, func(l *lane[B], ticket uint64) int { return cmp.Compare(l.ticket, ticket) })
}

// Offer hands a lane whose baton is fit for use over to the permit that has waited longest for one elsewhere (see Await), and came before all
// that wait in the queue. It reports false if there is none, or its limit is smaller than that of t: then the caller still has its turn.
//
// The receiver keeps its own lane as well. If Offer and the end of its wait meet, the first under the mutex wins. The caller of Received passes
// on a lane that comes too late.
func (t *Turn[B]) Offer() bool { // rule P2
	s := t.lockPermit()
	if s == nil {
		return false
	}
	defer s.mu.Unlock()
	e := t.lane.entry
	if len(e.awaiting) == 0 || e.awaiting[0].holder.kind < t.kind {
		return false
	}
	to := e.awaiting[0]
	e.awaiting = slices.Delete(e.awaiting, 0, 1)
	to.passed, t.lane.holder, t.state = t.lane, to.holder, gone
	to.called <- struct{}{} // there is room: Called has emptied it
	return true
}

// Received ends what Await or Aside has begun, if either has. It returns the turn of the lane that another permit has handed over meanwhile: the
// caller has two then, works with one of them, and passes the other on. nil: there is none. The holder of a turn may call it at any time.
func (t *Turn[B]) Received() *Turn[B] {
	s := t.lockPermit()
	if s == nil {
		return nil
	}
	defer s.mu.Unlock()
	e, l := t.lane.entry, t.lane
	l.become(atWork)
	if i, found := e.awaits(l); found {
		e.awaiting = slices.Delete(e.awaiting, i, i+1)
		return nil
	}
	if l.passed == nil {
		return nil
	}
	select {
	case <-l.called:
	default: // received before
	}
	other := &Turn[B]{lane: l.passed, kind: t.kind, state: held}
	other.lane.holder, other.lane.ticket, l.passed = other, l.ticket, nil
	return other
}

// Swap exchanges the lanes of two permits of a key, both of which the caller has.
func (t *Turn[B]) Swap(other *Turn[B]) {
	s := t.lock()
	if s == nil {
		return // never: nobody takes a permit from a caller that has not begun to use it
	}
	defer s.mu.Unlock()
	t.lane, other.lane = other.lane, t.lane
	t.lane.holder, other.lane.holder = t, other
}
