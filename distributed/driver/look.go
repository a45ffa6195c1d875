package driver

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// looks calls Look in the background, for one lane: for what is due, together, and for each attempt that an event is about.
type looks[W any] struct {
	b *Backend[W]

	mu      sync.Mutex
	queue   [][]*Attempt[W] // guarded by mu
	workers int             // guarded by mu
}

// mostLooking is how many calls of Look are under way in a lane at a time (rule C7), unless Settings.Looks says it.
const mostLooking = 64

// Poke has the attempt looked at now: something has happened, and only a look says what.
func (a *Attempt[W]) Poke() {
	if a.begins() {
		a.Lane.looks.add(a.self[:])
	}
}

// Asks says that Enter is about to send a question whose answer knows all that has happened so far. It needs no look of its own.
func (a *Attempt[W]) Asks() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == asking {
		a.events = false
	}
}

// queueLook gives the attempt to a worker. The caller holds mu.
func (a *Attempt[W]) queueLook() {
	a.looking = true
	a.Lane.looks.add(a.self[:])
}

// LookIn plans the next look without an event, of an attempt that waits or holds. As an answer to Look it says that nothing is new.
func (a *Attempt[W]) LookIn(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = true
	if d != Never && (a.state == waiting || a.state == held) {
		a.put(d)
	}
}

// LookSooner plans a look of an attempt that waits, because of a message: it puts none off, however many messages come.
func (a *Attempt[W]) LookSooner(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.state != waiting || a.next.After(now) && a.next.Before(now.Add(d)) { // one that is due is perhaps under way, and knows less
		return
	}
	a.put(d)
}

// plan sets when to look without an event: see Standing.Next. The caller holds mu.
func (a *Attempt[W]) plan(next time.Duration) {
	switch {
	case next == Never:
		return
	case next == 0:
		next = distributed.HeartbeatInterval(a.TTL)
	}
	a.put(next)
}

// put plans the next look, at a point of the grid, so that many looks share a request. The caller holds mu.
func (a *Attempt[W]) put(in time.Duration) {
	at := time.Now().Add(in)
	if grid := a.b.set.Grid; grid > 0 {
		step := max(distributed.HeartbeatInterval(a.TTL)/time.Duration(grid), time.Millisecond)
		if in > step {
			at = at.Add(-(at.Sub(a.b.base) % step))
		}
	}
	a.next = at
	a.b.due.Put(&a.item, at)
}

// lookDue is called by the timer.
func (b *Backend[W]) lookDue(_ time.Time, due []*Attempt[W]) {
	lanes := map[*Lane[W]][]*Attempt[W]{}
	for _, a := range due {
		if a.begins() {
			lanes[a.Lane] = append(lanes[a.Lane], a)
		}
	}
	for ln, all := range lanes {
		for some := range slices.Chunk(all, b.set.LookMost) {
			ln.looks.add(some)
		}
	}
}

// begins reports that the attempt is to be looked at by the caller. If that is under way, it will be again.
func (a *Attempt[W]) begins() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = true
	begins := !a.looking && (a.state == waiting || a.state == held)
	a.looking = a.looking || begins
	return begins
}

// add has attempts looked at that are marked as looking. The caller may hold the mutex of one.
func (q *looks[W]) add(some []*Attempt[W]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, some)
	if q.workers < cmp.Or(q.b.set.Looks, mostLooking) && q.b.Go(q.work) {
		q.workers++
	}
}

func (q *looks[W]) work() {
	for some := q.next(); some != nil; some = q.next() {
		lane := some[0].Lane
		if some = slices.DeleteFunc(slices.Clone(some), func(a *Attempt[W]) bool { return !a.goes() }); len(some) > 0 {
			q.b.driver.Look(lane.ctx, some)
		}
		for _, a := range some {
			a.looked()
		}
	}
}

func (q *looks[W]) next() []*Attempt[W] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.workers--
		return nil
	}
	some := q.queue[0]
	q.queue = q.queue[1:]
	for q.b.set.Looks > 0 && len(q.queue) > 0 && len(some)+len(q.queue[0]) <= q.b.set.LookMost {
		some = append(some, q.queue[0]...) // which copies it: none has room
		q.queue = q.queue[1:]
	}
	return some
}

// goes reports that a Look is still wanted.
func (a *Attempt[W]) goes() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looking = (a.state == waiting || a.state == held) && a.Lane.ctx.Err() == nil
	a.events, a.told, a.heard = false, false, time.Now()
	return a.looking
}

// Looking reports that a look is queued or under way. It is for tests of a Driver.
func (a *Attempt[W]) Looking() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looking
}

// looked is called after a Look. An attempt that had an event meanwhile is looked at again, and one that was not answered for soon.
func (a *Attempt[W]) looked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looking, a.heard = false, time.Now()
	if a.state != waiting && a.state != held {
		return
	}
	switch {
	case a.events:
		a.queueLook()
	case !a.told:
		a.plan(0)
	}
}
