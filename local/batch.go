package local

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// ErrRides is what Enter returns to a caller that the leader of a batch has taken along: the batch serves the caller, without a turn of its own.
// See Member.Wait.
var ErrRides = keyless.Errorf("taken along in a batch")

// Group is a set of callers that may share a batch: members of one group have the same pointer.
type Group struct{ _ byte } // not empty: pointers to empty structs may be equal

// Member is a caller's part in a batch. The holder of the turn is the leader of its batch. Turn.Take takes along the riders: the waiters of its
// group. Leader and riders alike wait for the end of the batch, or of their own context. The caller allocates a Member for one Enter.
type Member struct {
	Group *Group
	Owner any // a value of the queue's user for this caller

	// Set by Take, under the shard's mutex, before the member is aboard; read only from then on.
	next  *Member       // behind it in the batch
	ready chan struct{} // receives one value at the end of the batch
	taken time.Time

	state atomic.Uint32 // a memberState
	told  bool          // the value of ready has been received; for the caller's goroutine
}

type memberState = uint32

const (
	ashore memberState = iota
	aboard             // in a batch that has not ended
	left               // has not waited for the end
	ended
)

// Join makes the caller a member. Call it before Enter.
func (t *Turn[B]) Join(m *Member) { t.member = m }

// Take makes the holder of the turn the leader of a batch. In one step it takes along the unbroken run of waiters of the leader's group at the
// head of the queue, so that the batch has max members at most. Unlimited takes the whole run. They no longer wait: neither their deadlines nor
// Close end their part in the batch. The leader waits for the end of the batch on ready, which has room for one value. Take returns the number
// of members. Call it once.
//
// A rider that gives up at the same moment has either left the queue, or is taken along: the shard's mutex decides.
func (t *Turn[B]) Take(max int, ready chan struct{}, now time.Time) (size int) { // rules B1 and B2
	leader := t.member
	leader.board(ready, now)
	t.member = nil // contexts that outlive the batch keep the turn, and are not to keep the member
	s := t.lock()
	if s == nil {
		return 1 // taken from the leader, which goes alone
	}
	defer s.mu.Unlock()
	e, last := t.lane.entry, leader
	for size = 1; size != max && e.first != nil && e.first.follows(leader); size++ {
		rider := e.dequeue(e.first)
		rider.state = riding // rule B3
		last.next, last = rider.member, rider.member
		last.board(rider.ready, now)
	}
	return size
}

// follows reports whether t may ride with the leader.
func (t *Turn[B]) follows(leader *Member) bool {
	return t.member != nil && t.member.Group == leader.Group
}

func (m *Member) board(ready chan struct{}, now time.Time) {
	m.ready, m.taken = ready, now
	m.state.Store(aboard)
}

// Batch yields the members in the order of their arrival. m is the leader.
func (m *Member) Batch() iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		for ; m != nil && yield(m); m = m.next {
		}
	}
}

// Taken returns when the member was taken along.
func (m *Member) Taken() time.Time { return m.taken }

// Wait returns true when the batch has ended, and false if ctx ended before and the caller has left. If both happen at once, the first to change
// the state wins. A caller that loses has been sent the value, or is about to be. Leaving is O(1) and wakes no goroutine.
func (m *Member) Wait(ctx context.Context) (served bool) { // rule B7
	if m.told {
		return true
	}
	select {
	case <-m.ready:
		return true
	case <-ctx.Done():
	}
	if m.state.CompareAndSwap(aboard, left) {
		return false
	}
	<-m.ready
	return true
}

// End tells the caller that the batch has ended. It reports false if the caller has left. Call it once for each member.
func (m *Member) End() bool { // rule B7
	if !m.state.CompareAndSwap(aboard, ended) {
		return false
	}
	m.ready <- struct{}{} // there is room
	return true
}
