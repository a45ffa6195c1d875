// Package deadline keeps many points in time with one runtime timer.
//
// A lock library has a deadline for every hold (its maximum time) and for every lease (its next renewal, its end). One
// time.Timer each would cost an allocation and a place in the runtime's heap per call, for something that rarely fires. A
// Set keeps them in a heap of its own and arms one timer for the earliest. Removing an item leaves the timer as it is: it
// may then wake once in vain, which is cheaper than moving it at every call.
package deadline

import (
	"sync"
	"time"
)

// Item is a point in time in a Set. Owners embed it or keep it as a field, so that adding one allocates nothing.
// All its fields are guarded by the mutex of the Set it is in.
type Item[T any] struct {
	Owner T // set once, before the item is first added

	pos int // place in the heap plus one; 0: in no Set
}

// entry is an item's place in the heap. It holds the time, so that walking the heap does not touch the items, which would
// be a cache miss each.
type entry[T any] struct {
	due time.Duration // since the Set's base, so on the monotonic clock
	it  *Item[T]
}

// Set holds items in a heap ordered by time. It has no goroutine of its own: the runtime's timer starts one when an item is
// due, and Close waits for it.
type Set[T any] struct {
	fire func(now time.Time, due []T)
	base time.Time

	mu     sync.Mutex
	heap   []entry[T]    // guarded by mu
	timer  *time.Timer   // guarded by mu; nil until the first item
	armed  time.Duration // guarded by mu; when the timer fires next; idle if it does not
	closed bool          // guarded by mu
	firing sync.WaitGroup
}

// idle stands for "the timer is not set": later than every deadline.
const idle = time.Duration(1<<63 - 1)

// arity is the number of children per place of the heap. Four of them share one or two cache lines, and the heap is half as
// deep as a binary one (D. B. Johnson, "Priority queues with update and finding minimum spanning trees", 1975).
const arity = 4

// New returns an empty Set. All items due at one moment are passed to fire in one call, on a goroutine of its own and with no
// mutex held. Calls of fire can overlap. The items have left the Set by then and may be added again.
func New[T any](fire func(now time.Time, due []T)) *Set[T] {
	return &Set[T]{fire: fire, base: time.Now(), armed: idle}
}

// Put adds the item, or moves it if it is already in the Set. After Close it does nothing.
func (s *Set[T]) Put(it *Item[T], at time.Time) {
	s.mu.Lock()
	if !s.closed {
		s.put(entry[T]{at.Sub(s.base), it})
	}
	s.mu.Unlock() // not deferred, here and in Remove: every call does both for three items
}

// put adds an item, or moves it. The caller holds mu.
func (s *Set[T]) put(e entry[T]) {
	i := e.it.pos - 1
	if i < 0 {
		i = len(s.heap)
		s.heap = append(s.heap, e)
	}
	s.settle(i, e)
	s.arm()
}

// Remove removes the item. It reports false if the item was not in the Set: never put, removed before, or taken to be fired.
// In a race with the timer exactly one of them gets the item.
func (s *Set[T]) Remove(it *Item[T]) (was bool) {
	s.mu.Lock()
	if was = it.pos > 0; was {
		s.take(it.pos - 1)
	}
	s.mu.Unlock()
	return was
}

// Len returns the number of items.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heap)
}

// Close drops all items, whose owners it returns, and waits until no call of fire is running, so fire must not call it.
func (s *Set[T]) Close() (dropped []T) {
	s.mu.Lock()
	s.closed = true
	for _, e := range s.heap {
		e.it.pos = 0
		dropped = append(dropped, e.it.Owner)
	}
	s.heap = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.firing.Wait()
	return dropped
}

// run is the timer's function.
func (s *Set[T]) run() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.firing.Add(1) // under mu and before closed is set, so Close waits for us
	defer s.firing.Done()
	now := time.Now()
	var due []T
	for len(s.heap) > 0 && s.heap[0].due <= now.Sub(s.base) {
		due = append(due, s.take(0).Owner)
	}
	s.armed = idle
	s.arm()
	s.mu.Unlock()
	if len(due) > 0 {
		s.fire(now, due)
	}
}

// arm makes sure that the timer fires no later than the earliest item is due. The caller holds mu.
func (s *Set[T]) arm() {
	if len(s.heap) == 0 || s.armed <= s.heap[0].due {
		return
	}
	s.armed = s.heap[0].due
	wait := s.armed - time.Since(s.base)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.run)
	} else {
		s.timer.Reset(wait)
	}
}

// take removes the item at place i and returns it. The caller holds mu.
func (s *Set[T]) take(i int) *Item[T] {
	it, n := s.heap[i].it, len(s.heap)-1
	last := s.heap[n]
	s.heap[n] = entry[T]{}
	s.heap = s.heap[:n]
	it.pos = 0
	if i < n {
		s.settle(i, last)
	}
	return it
}

// settle moves an entry from the free place i to where it belongs. The caller holds mu.
func (s *Set[T]) settle(i int, e entry[T]) {
	free := i
	for i > 0 && s.heap[(i-1)/arity].due > e.due {
		s.place(i, s.heap[(i-1)/arity])
		i = (i - 1) / arity
	}
	if i == free {
		for child := s.earliestChild(i); child > 0 && s.heap[child].due < e.due; child = s.earliestChild(i) {
			s.place(i, s.heap[child])
			i = child
		}
	}
	s.place(i, e)
}

func (s *Set[T]) place(i int, e entry[T]) {
	s.heap[i] = e
	e.it.pos = i + 1
}

// earliestChild returns the place below i that is due first; 0: there is none.
func (s *Set[T]) earliestChild(i int) int {
	first := arity*i + 1
	if first >= len(s.heap) {
		return 0
	}
	earliest := first
	for child := first + 1; child < min(first+arity, len(s.heap)); child++ {
		if s.heap[child].due < s.heap[earliest].due {
			earliest = child
		}
	}
	return earliest
}
