package local

import (
	"context"
	"sync/atomic"
	"time"
)

// Turn is one caller's right to run next for one key, or its position in the queue. The caller allocates it, so a turn costs no allocation of
// its own. The zero value is ready for Enter. A turn that has ended may be reused once no late call can refer to it.
//
// A turn can be taken from its holder: the first call of Pass or Leave wins, and the second one finds the turn Taken. So a function that returns
// after its turn was taken changes nothing.
type Turn[B any] struct {
	// lane is set by Enter, to lane 0 while a permit waits, and by whatever gives t its turn. It is guarded by the shard's mutex
	// for all but the caller, as state is; but what it points to never changes its shard.
	lane *lane[B]

	// Guarded by the shard's mutex. state is set before ready is sent, so the receiver may read it, too.
	state          turnState
	early          bool   // permits were held when t got the turn: see Alone
	reopens        uint16 // the entry's, when t last got the turn
	kind           kind
	before, behind *Turn[B]
	ready          chan struct{} // receives one value at the end of the wait, of a rider's when its batch ends; nil: has not waited
	member         *Member       // nil: no batch takes the caller along
	counts         *atomic.Int64 // Ask.Waiting, while it counts t
}

type turnState uint8

const (
	gone    turnState = iota // not entered, passed on, taken, or given up
	waiting                  // in the queue
	held
	refused // wait ended by Close
	riding  // taken along by the leader of a batch
)

// Outcome is what Pass did.
type Outcome uint8

const (
	// Taken: the caller no longer had the turn.
	Taken Outcome = iota
	// Passed: the turn has gone to the next waiter, or it was a shared one and others still have theirs.
	Passed
	// Kept: there is no waiter. The caller still has the turn, alone, and cleans up before it calls Leave.
	Kept
	// Barred is Kept although callers wait. The first of them, or one that has its turn early, cannot use this baton: it waits for another lane,
	// or for others to leave as well.
	Barred
)

// Baton returns the baton of the lane. Only the holder of the turn may call it.
func (t *Turn[B]) Baton() B { return t.lane.baton }

// Queued reports whether the caller waited for the turn it has, or has given up.
func (t *Turn[B]) Queued() bool { return t.ready != nil }

// Pass hands the turn to the first waiter. If there is none, or the waiter cannot use this turn, the caller keeps it.
func (t *Turn[B]) Pass() Outcome {
	s := t.lock()
	if s == nil {
		return Taken
	}
	defer s.mu.Unlock()
	e := t.lane.entry
	switch {
	case t.kind.isPermit() && e.passLane(t):
		return Passed
	case t.kind.isPermit() && e.holders > 0 && !e.shares && !e.idle: // an exclusive caller waits for this permit to leave
		return Barred
	case t.kind.isPermit():
	case e.holders > 1 || e.succeeds(e.first):
		t.drop()
		return Passed
	default:
		e.open = false
	}
	if e.first == nil {
		return Kept
	}
	return Barred
}

// Leave gives up the turn in any case. It reports false if the caller no longer had it.
func (t *Turn[B]) Leave() bool {
	s := t.lock()
	if s == nil {
		return false
	}
	defer s.mu.Unlock()
	e := t.lane.entry
	t.drop()
	s.tidy(e)
	return true
}

// Share lets the shared waiters at the head of the queue enter beside t, and later shared callers as long as no caller waits.
func (t *Turn[B]) Share() {
	s := t.lock()
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	t.lane.entry.open = true
	t.lane.entry.admitHeads()
}

// Reopen is Share for a baton that has become usable again. A caller that found it unusable and has yet to call Again then does not wait either.
func (t *Turn[B]) Reopen() {
	s := t.lock()
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	e := t.lane.entry
	e.open = true
	e.reopens++
	e.admitHeads()
}

// Again is for the holder of a shared turn that came too late, because the baton may no longer be used. It returns when t has the turn again.
// Usually t has it alone, when all other holders have left: meanwhile t waits at the head, and no caller enters. t has it beside a holder that
// calls Share or Reopen, because the baton may be usable then, and at once if Reopen was called since t got the turn. The errors are those of
// Enter, except ErrQueueFull. After an error t does not have the turn.
func (t *Turn[B]) Again(ctx context.Context, ask Ask) error {
	s := t.lock()
	if s == nil {
		return ErrClosed // never: a shared turn is taken only from a caller that was admitted
	}
	e := t.lane.entry
	if t.reopens != e.reopens {
		t.reopens = e.reopens
		s.mu.Unlock()
		return nil
	}
	e.open = false
	if e.holders == 1 {
		s.mu.Unlock()
		return nil
	}
	if s.closed || ask.NoWait {
		defer s.mu.Unlock()
		t.drop()
		if s.closed {
			return ErrClosed
		}
		return ErrBusy
	}
	e.holders--
	e.enqueueFirst(t)
	s.mu.Unlock()
	return t.wait(ctx, s, ask)
}

// Pin keeps the lane and its baton until Queue.Unpin. Only the holder of the turn may call it.
func (t *Turn[B]) Pin() {
	if s := t.lock(); s != nil {
		t.lane.pins++
		s.mu.Unlock()
	}
}

// lock returns the locked shard of the turn, or nil if the turn is not held. The lane of a turn that is not held may
// serve another key by now, but its shard never changes, so the mutex is still the right one.
func (t *Turn[B]) lock() *shard[B] {
	if t.lane == nil {
		return nil
	}
	s := t.lane.shard
	s.mu.Lock()
	if t.state != held { // rule L3: a late call changes nothing
		s.mu.Unlock()
		return nil
	}
	return s
}

// drop ends a held turn; the last holder hands it to the first waiter. The caller holds the mutex.
func (t *Turn[B]) drop() {
	e := t.lane.entry
	t.state = gone
	if t.lane.index > 0 {
		e.dropLane(t)
	} else if e.holders--; e.holders > 0 {
		return
	} else {
		e.open, e.idle = false, false
	}
	e.admitHeads() // rule L1
}

// resolve ends the wait of t. The caller holds the mutex; the channel has room for the value.
func (t *Turn[B]) resolve(state turnState) {
	t.state = state
	t.ready <- struct{}{}
}

// until waits for ready.
func until(ctx context.Context, ready <-chan struct{}, deadline time.Time) error {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout:
		return ErrTimeout
	}
}

// wait returns when t has the turn, has left the queue, or was taken along.
func (t *Turn[B]) wait(ctx context.Context, s *shard[B], ask Ask) (err error) {
	err = until(ctx, t.ready, ask.Deadline)
	if err != nil && t.giveUp(s) {
		return err
	}
	if t.state == riding {
		t.member.told = err == nil
		return ErrRides
	}
	if t.state == refused {
		return ErrClosed
	}
	return nil
}

// giveUp leaves the queue. It reports false if the wait has ended already: that decision stands.
func (t *Turn[B]) giveUp(s *shard[B]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state != waiting { // rule L3: the turn was handed over, so the caller has to pass it on, or a leader took it along
		return false
	}
	e := t.lane.entry
	e.dequeue(t)
	t.state = gone
	e.admitHeads() // t may have kept those behind it from the holders: sharers from sharers, permits from free lanes
	return true
}
