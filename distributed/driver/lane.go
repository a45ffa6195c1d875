package driver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

// Lane is what the attempts of one session, or of one server, share: they are dropped, looked at and renewed together. A Driver makes
// one for each session, or server.
type Lane[W any] struct {
	b       *Backend[W]
	ctx     context.Context // of its requests
	session Session         // nil: leases are renewed one by one
	keeper  *keepalive.Keeper
	looks   looks[W]

	mu       sync.Mutex             // guards all below; taken before that of the Backend
	attempts map[uint64]*Attempt[W] // that are not over (rule C5)
	asks     int                    // calls of Enter
	queue    []*Attempt[W]          // to be dropped
	refused  []*Attempt[W]          // to be dropped with the next Retry: they hold up nobody else
	workers  int                    // that drop
	here     int                    // Releases that drop on their own goroutine
	pauses   int                    // before the next Drop
	over     bool
	resting  chan struct{} // closed when nothing is left to drop; nil: nobody waits for that

	works func() // work, as a value; never changed
}

// NewLane returns a lane for a new session, whose requests end with ctx. With a Renewer it is for a server, without a session.
func (b *Backend[W]) NewLane(ctx context.Context, s Session) *Lane[W] {
	ln := &Lane[W]{b: b, ctx: ctx, session: s, attempts: map[uint64]*Attempt[W]{}}
	ln.keeper, ln.looks.b, ln.works = keepalive.NewKeeper(ln.renew), b, ln.work
	ln.keeper.HearsRefusals = b.set.Tells
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes[ln] = struct{}{}
	return ln
}

func (ln *Lane[W]) add(a *Attempt[W]) error {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	switch {
	case ln.b.Closed(): // set before Close asks for the attempts of a lane
		return distributed.ErrClosed
	case ln.over:
		return ErrOver
	}
	ln.attempts[a.Number] = a
	ln.asks++
	return nil
}

// asked notes that a call of Enter has returned.
func (ln *Lane[W]) asked() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.asks--
	ln.rested()
}

func (ln *Lane[W]) forget(a *Attempt[W]) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	delete(ln.attempts, a.Number)
}

// Find returns the attempt with that number, or nil if it is over. It is for what a service pushes.
func (ln *Lane[W]) Find(number uint64) *Attempt[W] {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.attempts[number]
}

// Attempts returns those that are not over.
func (ln *Lane[W]) Attempts() []*Attempt[W] {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return slices.Collect(maps.Values(ln.attempts))
}

// Some returns any of these, so many at most.
func (ln *Lane[W]) Some(most int) (some []*Attempt[W]) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, a := range ln.attempts {
		if len(some) == most {
			break
		}
		some = append(some, a)
	}
	return some
}

// holds reports that leases are held which have not expired.
func (ln *Lane[W]) holds() bool { return slices.ContainsFunc(ln.Attempts(), (*Attempt[W]).Held) }

// Unused reports that all attempts are over.
func (ln *Lane[W]) Unused() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return len(ln.attempts) == 0 && ln.idle()
}

// shutUnused has the lane take no more attempts if it is Unused: of that and a request the mutex says which was first (rule C5).
func (ln *Lane[W]) shutUnused() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	unused := len(ln.attempts) == 0 && ln.idle()
	ln.over = ln.over || unused
	return unused
}

// Over is called when the service says that the session has expired: places and leases are lost. Repeated calls do nothing.
func (ln *Lane[W]) Over() {
	ln.Shut()
	for _, a := range ln.Attempts() {
		a.sessionOver()
	}
}

// Shut is called when the session is over, or was closed: nothing is left to drop. Leases that are held after Close expire.
func (ln *Lane[W]) Shut() {
	ln.mu.Lock()
	rest := append(ln.queue, ln.refused...)
	ln.queue, ln.refused, ln.over = nil, nil, true
	ln.rested()
	ln.mu.Unlock()
	ln.b.mu.Lock()
	delete(ln.b.lanes, ln)
	ln.b.mu.Unlock()
	for _, a := range rest {
		a.giveUp()
	}
}

// push has an attempt dropped in the background.
func (ln *Lane[W]) push(a *Attempt[W]) {
	if ln.enqueue(a, &ln.queue) {
		ln.begin()
	}
}

// enqueue queues an attempt to be dropped. It reports false if the lane is over, and with it the attempt.
func (ln *Lane[W]) enqueue(a *Attempt[W], queue *[]*Attempt[W]) bool {
	ln.mu.Lock()
	gone := ln.over
	if !gone && !a.queued {
		a.queued = true
		*queue = append(*queue, a)
	}
	ln.mu.Unlock()
	if gone {
		a.giveUp()
	}
	return !gone
}

// dropHere drops an attempt on the caller's goroutine if it has time and little else is to be dropped. When ctx ends that goes on in the
// background.
func (ln *Lane[W]) dropHere(ctx context.Context, a *Attempt[W]) {
	ln.mu.Lock()
	here := ctx.Err() == nil && !ln.over && len(ln.queue)+len(ln.refused)+ln.workers+ln.here < ln.b.set.DropsHere
	if here {
		ln.here++
	}
	ln.mu.Unlock()
	if !here {
		ln.push(a)
		return
	}
	if a.begun() {
		ln.send(ctx, a.self[:])
	}
	ln.mu.Lock()
	ln.here--
	ln.rested()
	ln.mu.Unlock()
	ln.begin() // what came meanwhile, or is to be repeated
}

// Retry begins to drop what was not answered, or refused: the service answers again.
func (ln *Lane[W]) Retry() {
	ln.mu.Lock()
	ln.queue, ln.refused = append(ln.queue, ln.refused...), nil
	ln.mu.Unlock()
	ln.begin()
}

// begin begins to drop what is queued.
func (ln *Lane[W]) begin() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if len(ln.queue) > 0 && ln.workers < ln.b.set.Drops && ln.b.Go(ln.works) {
		ln.workers++
	}
}

// work drops what is queued. It ends when there is no more, or when the service has not answered and there is no pause to wait for.
func (ln *Lane[W]) work() {
	for {
		ln.mu.Lock()
		n := min(len(ln.queue), ln.b.set.DropMost)
		if n == 0 {
			ln.stops()
			ln.mu.Unlock()
			return
		}
		some := ln.queue[0].self[:]
		if n > 1 {
			some = slices.Clone(ln.queue[:n])
		}
		ln.queue = slices.Delete(ln.queue, 0, n)
		for _, a := range some {
			a.queued = false
		}
		ln.mu.Unlock()
		switch { // self is never written, since others read it
		case n > 1:
			some = slices.DeleteFunc(some, func(a *Attempt[W]) bool { return !a.begun() })
		case !some[0].begun():
			some = nil
		}
		if !ln.send(ln.ctx, some) {
			ln.mu.Lock()
			ln.stops()
			ln.mu.Unlock()
			return
		}
	}
}

// send drops attempts that nobody else removes, and queues again those that are not over then (rule C2). It reports whether to go on.
func (ln *Lane[W]) send(ctx context.Context, some []*Attempt[W]) (next bool) {
	if len(some) == 0 {
		return true
	}
	ln.b.driver.Drop(ctx, some)
	next = true
	var paused []*Attempt[W]
	for _, a := range some {
		switch left, refused := a.left(); {
		case !left:
		case ln.b.set.Pause != nil:
			paused = append(paused, a)
		case refused:
			ln.enqueue(a, &ln.refused)
		default:
			next = false
			ln.enqueue(a, &ln.queue)
		}
	}
	ln.pause(paused)
	return next
}

// pause queues again, after a pause that holds up nobody else, those that have not expired meanwhile.
func (ln *Lane[W]) pause(some []*Attempt[W]) {
	now, tries := time.Now(), 1
	some = slices.DeleteFunc(some, func(a *Attempt[W]) bool {
		n, worthwhile := a.worthwhile(now)
		if tries = max(tries, n); !worthwhile {
			a.giveUp()
		}
		return !worthwhile
	})
	if len(some) == 0 {
		return
	}
	ln.mu.Lock()
	ln.pauses++
	ln.mu.Unlock()
	time.AfterFunc(ln.b.set.Pause(tries), func() {
		for _, a := range some {
			ln.enqueue(a, &ln.queue)
		}
		ln.mu.Lock()
		ln.pauses--
		ln.mu.Unlock()
		ln.begin()
	})
}

// idle reports that nothing is to be dropped, now or after an Enter. The caller holds mu.
func (ln *Lane[W]) idle() bool {
	return ln.asks == 0 && len(ln.queue) == 0 && len(ln.refused) == 0 && ln.workers == 0 && ln.here == 0 && ln.pauses == 0
}

// stops notes that a worker ends. The caller holds mu.
func (ln *Lane[W]) stops() {
	ln.workers--
	ln.rested()
}

// Rest returns a channel that is closed when no Enter is under way and nothing is left to drop.
func (ln *Lane[W]) Rest() <-chan struct{} {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.resting == nil {
		ln.resting = make(chan struct{})
	}
	resting := ln.resting
	ln.rested()
	return resting
}

// Flush waits for the Rest, for so long at most.
func (ln *Lane[W]) Flush(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ln.Rest():
	case <-timer.C:
	}
}

// rested tells those who wait for the rest. The caller holds mu.
func (ln *Lane[W]) rested() {
	if ln.idle() && ln.resting != nil {
		close(ln.resting)
		ln.resting = nil
	}
}
