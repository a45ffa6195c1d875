// Package live reads the locks of a system for a terminal, as top(1) shows processes, or for the viewers of a page. What that costs the
// backend grows neither with the number of locks nor with that of viewers.
//
//	reader.readAll ──▶ List, page by page, at a pace ──▶ the locks known ──▶ the first of them by waiters and age ──▶ the screen, or a View
//	reader.refresh ──▶ Inspect, the locks on a screen, each interval ──▶
package live

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
)

const (
	// perPage is how many locks a page asks for, and the least that one costs: a backend looks at others' keys as well.
	perPage = 500
	// pace is how many locks are read in a second once there is something on the screen: Redis takes 6 µs for each, so 2.4% of a core.
	pace = 4000
	// atFirst is how long locks are read as fast as the backend answers: until there is a first screen.
	atFirst = 300 * time.Millisecond
	// retryAfter is the pause after an error.
	retryAfter = time.Second
	// silence is how long a backend may take for an answer before it is said not to give any.
	silence = 1500 * time.Millisecond
	// stale is how old locks may be that are shown beside those of a new answer, and an interval more.
	stale = 30 * time.Second
	// maxShown is how many locks are looked at in each interval at most: those of two pages.
	maxShown = 200
)

var errSilent = errors.New("it does not answer")

// reader knows the locks of a system.
type reader struct {
	inspector distributed.Inspector
	prefix    string
	name      func(full string) string // as it is shown
	filter    *regexp.Regexp           // nil: all
	interval  time.Duration
	changed   chan struct{} // has room for one: there is something to show
	unnamed   chan struct{} // has room for one: there are locks on a screen whose waiters are not named

	mu       sync.Mutex
	locks    map[string]*Lock     // guarded by mu
	shown    map[string]time.Time // guarded by mu; when a lock was on a screen last
	round    chan struct{}        // guarded by mu; closed when those on a screen have been looked at
	pass     int                  // guarded by mu
	passed   bool                 // guarded by mu; one pass has ended
	asked    time.Time            // guarded by mu; since when an answer is awaited; zero: none is
	answered time.Time            // guarded by mu; the last answer that was no error
	err      error                // guarded by mu; of the last answer; nil: it was none
	since    time.Time            // guarded by mu; when err became nil, or something
}

// Lock is one that is known. It does not change: what is told later is another one.
type Lock struct {
	distributed.Inspection
	Name  string    // the full name as it is shown
	named time.Time // when Inspect told of it, and so who waits; zero: only List has
	pass  int       // the last that found it
}

func newReader(i distributed.Inspector, o Options) *reader {
	return &reader{
		inspector: i, prefix: o.Prefix, name: o.Shown, filter: o.Filter, interval: o.Interval,
		changed: make(chan struct{}, 1), unnamed: make(chan struct{}, 1),
		locks: make(map[string]*Lock), shown: make(map[string]time.Time), round: make(chan struct{}),
	}
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { r.refresh(ctx) })
	quickUntil := time.Now().Add(atFirst)
	for ctx.Err() == nil {
		began := time.Now()
		if r.readAll(ctx, quickUntil) {
			r.forget()
			poke(r.changed)
			sleep(ctx, r.interval-time.Since(began))
		} else {
			poke(r.changed)
			sleep(ctx, retryAfter)
		}
	}
}

// poke sends to a channel that has room for one, unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// readAll is one pass over all pages.
func (r *reader) readAll(ctx context.Context, quickUntil time.Time) (done bool) {
	r.begin()
	for cursor := ""; ctx.Err() == nil; {
		r.asks(time.Now())
		page, next, err := r.inspector.List(ctx, r.prefix, cursor, perPage)
		if ctx.Err() != nil { // which is no fault of the backend
			r.asks(time.Time{})
			return false
		}
		r.note(page, err, time.Now())
		if err != nil {
			return false
		}
		if cursor = next; cursor == "" {
			return true
		}
		if time.Now().After(quickUntil) {
			poke(r.changed)
			sleep(ctx, time.Duration(max(len(page), perPage))*time.Second/pace)
		}
	}
	return false
}

// asks notes when a question was asked whose answer is awaited. The zero time: none is.
func (r *reader) asks(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = at
}

// note keeps an answer.
func (r *reader) note(page []distributed.Inspection, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	anew := err == nil && now.Sub(r.answered) > stale+r.interval
	if anew || (err == nil) != (r.err == nil) {
		r.since = now
	}
	if r.asked, r.err = (time.Time{}), err; err != nil {
		return
	}
	if r.answered = now; anew {
		clear(r.locks)
		r.passed = false
	}
	for _, i := range page {
		name := r.name(i.Key)
		if r.filter != nil && !r.filter.MatchString(name) {
			continue
		}
		l := &Lock{i, name, time.Time{}, r.pass}
		if was := r.locks[i.Key]; was != nil && r.isNamed(was, now) { // Inspect has told more of it
			l.Inspection, l.named = was.Inspection, was.named
		}
		r.locks[i.Key] = l
	}
}

// isNamed reports that Inspect has told of a lock not long ago.
func (r *reader) isNamed(l *Lock, now time.Time) bool { return now.Sub(l.named) < 2*r.interval }

// begin begins a pass. What one that was broken off has found does not count.
func (r *reader) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass++
}

// forget ends a pass: what it has not found is free.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.locks {
		if s.pass != r.pass {
			delete(r.locks, key)
		}
	}
	r.passed = true
}

// refresh asks for the locks on a screen in each interval, and at once for those whose waiters have no names there.
func (r *reader) refresh(ctx context.Context) {
	for ctx.Err() == nil {
		for _, key := range r.due(time.Now()) {
			found, err := r.inspector.Inspect(ctx, key)
			if err != nil {
				break // the pass reports it
			}
			r.update(found, time.Now())
		}
		r.endRound()
		next := time.NewTimer(r.interval)
		select {
		case <-next.C:
		case <-r.unnamed:
		case <-ctx.Done():
		}
		next.Stop()
	}
}

// due returns the locks that were on a screen not long ago, and were not asked for meanwhile.
func (r *reader) due(now time.Time) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, at := range r.shown {
		switch l, known := r.locks[key]; {
		case !known || now.Sub(at) > 5*r.interval:
			delete(r.shown, key)
		case now.Sub(l.named) > r.interval/2:
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *reader) update(i distributed.Inspection, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.Held() {
		r.locks[i.Key] = &Lock{i, r.name(i.Key), now, r.pass}
	} else {
		delete(r.locks, i.Key)
	}
}

func (r *reader) endRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.round)
	r.round = make(chan struct{})
}

// Frame is what is known at one moment.
type Frame struct {
	Locks         []*Lock   // those that most wait for come first
	Held, Waiting int       // of all of them, also of those that are left out
	Complete      bool      // there are no others
	Err           error     // why the backend is not available. Nil: it is
	Since         time.Time // it is so since then
	Answered      time.Time // its last answer, which has told of the locks. Zero: there was none
}

// all returns all locks that are known.
func (r *reader) all(now time.Time) Frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := Frame{
		Locks: make([]*Lock, 0, len(r.locks)), Held: len(r.locks), Complete: r.passed, Err: r.err, Since: r.since, Answered: r.answered,
	}
	if r.err == nil && !r.asked.IsZero() && now.Sub(r.asked) >= silence {
		f.Err, f.Since = errSilent, r.asked
	}
	for _, l := range r.locks {
		f.Locks = append(f.Locks, l)
		f.Waiting += show.Waiting(l.Inspection)
	}
	slices.SortFunc(f.Locks, func(a, b *Lock) int { return order(&a.Inspection, &b.Inspection, now) })
	return f
}

// first returns the first n locks, which are from now on those on the screen.
func (r *reader) first(n int, now time.Time) Frame {
	f := r.all(now)
	f.Locks = f.Locks[:min(max(n, 0), len(f.Locks))]
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.shown)
	for _, l := range f.Locks {
		r.shown[l.Key] = now
	}
	return f
}

// show notes that locks are on one more screen, and brings them up to date. round is nil, unless waiters are to be named: it is closed when
// that was tried.
func (r *reader) show(locks []*Lock, now time.Time) (round <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, l := range locks {
		if known, ok := r.locks[l.Key]; ok {
			l, locks[n] = known, known
		}
		if _, on := r.shown[l.Key]; !on && len(r.shown) >= maxShown {
			continue
		}
		r.shown[l.Key] = now
		if show.Waiting(l.Inspection) > 0 && !r.isNamed(l, now) && r.err == nil {
			poke(r.unnamed)
			round = r.round
		}
	}
	return round
}

// Sort puts the locks that most wait for first, and of these the longest held.
func Sort(all []distributed.Inspection, now time.Time) {
	slices.SortFunc(all, func(a, b distributed.Inspection) int { return order(&a, &b, now) })
}

func order(a, b *distributed.Inspection, now time.Time) int {
	if c := cmp.Compare(show.Waiting(*b), show.Waiting(*a)); c != 0 {
		return c
	}
	if c := cmp.Compare(show.Age(*b, now), show.Age(*a, now)); c != 0 {
		return c
	}
	return cmp.Compare(a.Key, b.Key)
}

// sleep waits for d, but not past the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
