package local

import (
	"context"
	"time"
)

// Turn is one caller's right to go next for one key, or its stand in the line. It is the caller's own variable, so a
// turn costs no allocation; the zero value is ready for Enter. After the turn is gone it may be used again, once nobody
// can come late with it any more.
//
// A turn can be taken from its holder: whoever calls Pass or Leave first wins, for the second the turn is Taken. So a
// function that comes back after its turn was taken changes nothing.
type Turn[B any] struct {
	entry *entry[B] // set by Enter; not to be followed unless state is held or waiting

	// Guarded by the shard's mutex. The sender of ready has set state before, so the receiver may read it, too.
	state          turnState
	shared         bool
	before, behind *Turn[B]
	ready          chan struct{} // gets one value when the wait is over; nil: has not stood in the line
}

type turnState uint8

const (
	gone    turnState = iota // not entered, passed on, taken, or given up
	waiting                  // in the line
	held
	refused // sent away by Close
)

// Outcome says what Pass did.
type Outcome uint8

const (
	// Taken: the caller did not have the turn any more.
	Taken Outcome = iota
	// Passed: the turn has gone to the next in line, or it was a shared one and others still have theirs.
	Passed
	// Kept: nobody waits. The caller still has the turn, alone, and tidies up before it calls Leave.
	Kept
)

// Baton returns what this key's turn carries. Only the holder of the turn may call it.
func (t *Turn[B]) Baton() B { return t.entry.baton }

// Queued reports that the caller stood in the line for the turn it has, or has given up.
func (t *Turn[B]) Queued() bool { return t.ready != nil }

// Pass hands the turn to the first of the line. If nobody waits, the caller keeps it.
func (t *Turn[B]) Pass() Outcome {
	s := t.lock()
	if s == nil {
		return Taken
	}
	defer s.mu.Unlock()
	if t.entry.holders == 1 && t.entry.first == nil {
		t.entry.open = false
		return Kept
	}
	t.drop()
	return Passed
}

// Leave gives the turn up in any case. It reports false if the caller did not have it any more.
func (t *Turn[B]) Leave() bool {
	s := t.lock()
	if s == nil {
		return false
	}
	defer s.mu.Unlock()
	e := t.entry
	t.drop()
	s.tidy(e)
	return true
}

// Share lets the shared callers that stand first in the line come in beside t, and those that come later as long as
// nobody waits.
func (t *Turn[B]) Share() {
	s := t.lock()
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	t.entry.open = true
	t.entry.admitShared()
}

// Again is for the holder of a shared turn who finds that it came too late, because what the baton carries may not be
// used any longer. It returns when t has the turn again: alone, when all fellow holders have left, for t stands first in
// the line meanwhile and nobody comes in; or beside one of them that calls Share, which may have made the baton good.
// Errors are those of Enter, but for ErrQueueFull; t does not have the turn then.
func (t *Turn[B]) Again(ctx context.Context, ask Ask) error {
	s := t.lock()
	if s == nil {
		return ErrClosed // never: a shared turn is taken only from one who got in
	}
	e := t.entry
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
	return t.wait(ctx, ask)
}

// Pin keeps the key's entry, and so its baton, until Queue.Unpin. Only the holder of the turn may call it.
func (t *Turn[B]) Pin() {
	if s := t.lock(); s != nil {
		t.entry.pins++
		s.mu.Unlock()
	}
}

// lock returns the locked shard of the turn, or nil if the turn is not held. The entry of a turn that is not held may
// serve another key by now; its shard never changes, so the mutex is the right one all the same.
func (t *Turn[B]) lock() *shard[B] {
	if t.entry == nil {
		return nil
	}
	s := t.entry.shard
	s.mu.Lock()
	if t.state != held {
		s.mu.Unlock()
		return nil
	}
	return s
}

// drop ends a held turn; the last holder hands over to the first of the line. The caller holds the mutex.
func (t *Turn[B]) drop() {
	e := t.entry
	t.state = gone
	e.holders--
	if e.holders > 0 {
		return
	}
	e.open = false
	if e.first != nil {
		e.admitFirst()
	}
}

// resolve ends the wait of t. The caller holds the mutex; the channel has room for the one value.
func (t *Turn[B]) resolve(state turnState) {
	t.state = state
	t.ready <- struct{}{}
}

// wait returns when t has the turn or has left the line.
func (t *Turn[B]) wait(ctx context.Context, ask Ask) error {
	if ask.Waiting != nil {
		ask.Waiting.Add(1)
		defer ask.Waiting.Add(-1)
	}
	var timeout <-chan time.Time
	if !ask.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(ask.Deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		if t.giveUp() {
			return ctx.Err()
		}
	case <-timeout:
		if t.giveUp() {
			return ErrTimeout
		}
	}
	if t.state == refused {
		return ErrClosed
	}
	return nil
}

// giveUp leaves the line. It reports false when the wait was over already: what was decided then, stands.
func (t *Turn[B]) giveUp() bool {
	s := t.entry.shard // t is in the line or has just been given the turn, so the entry is this key's
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state != waiting {
		return false
	}
	t.entry.dequeue(t)
	t.state = gone
	if t.entry.open { // only then can t have stood between sharers and those behind it
		t.entry.admitShared()
	}
	return true
}
