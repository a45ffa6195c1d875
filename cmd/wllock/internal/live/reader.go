// Package live shows the locks of a system on a terminal, as top(1) does processes, at a cost to the backend that does not grow with
// the number of locks.
//
//	reader.pass ──▶ List, page by page, at a pace ──▶ the locks known ──▶ the first of them by waiters and age ──▶ the screen
//	reader.refresh ──▶ Inspect, the locks on the screen, each interval ──▶
package live

import (
	"cmp"
	"context"
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
)

// reader knows the locks of a system.
type reader struct {
	inspector distributed.Inspector
	prefix    string
	name      func(full string) string // as it is shown
	filter    *regexp.Regexp           // nil: all
	interval  time.Duration
	changed   chan struct{} // has room for one: there is a first screen

	mu     sync.Mutex
	locks  map[string]seen // guarded by mu
	shown  []string        // guarded by mu; what is on the screen
	pass   int             // guarded by mu
	passed bool            // guarded by mu; one pass has ended
	err    error           // guarded by mu; of the last answer; nil: it was none
}

// seen is a lock, and the last pass that found it.
type seen struct {
	distributed.Inspection
	pass int
}

func newReader(i distributed.Inspector, o Options) *reader {
	return &reader{
		inspector: i, prefix: o.Prefix, name: o.Shown, filter: o.Filter, interval: o.Interval,
		changed: make(chan struct{}, 1), locks: make(map[string]seen),
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
			r.announce()
			sleep(ctx, r.interval-time.Since(began))
		} else {
			sleep(ctx, retryAfter)
		}
	}
}

// announce says that there is a first screen.
func (r *reader) announce() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// readAll is one pass over all pages.
func (r *reader) readAll(ctx context.Context, quickUntil time.Time) (done bool) {
	for cursor := ""; ctx.Err() == nil; {
		page, next, err := r.inspector.List(ctx, r.prefix, cursor, perPage)
		r.note(page, err)
		if err != nil {
			return false
		}
		if cursor = next; cursor == "" {
			return true
		}
		if time.Now().After(quickUntil) {
			r.announce()
			sleep(ctx, time.Duration(max(len(page), perPage))*time.Second/pace)
		}
	}
	return false
}

// note keeps a page.
func (r *reader) note(page []distributed.Inspection, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	for _, i := range page {
		if r.filter == nil || r.filter.MatchString(r.name(i.Key)) {
			r.locks[i.Key] = seen{i, r.pass}
		}
	}
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
	r.pass++
	r.passed = true
}

// refresh asks for the locks on the screen in each interval.
func (r *reader) refresh(ctx context.Context) {
	for sleep(ctx, r.interval); ctx.Err() == nil; sleep(ctx, r.interval) {
		for _, key := range r.onScreen() {
			found, err := r.inspector.Inspect(ctx, key)
			if err != nil {
				break // the pass reports it
			}
			r.update(found)
		}
	}
}

func (r *reader) onScreen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.shown)
}

func (r *reader) update(i distributed.Inspection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.Held() {
		r.locks[i.Key] = seen{i, r.pass}
	} else {
		delete(r.locks, i.Key)
	}
}

// frame is what a screen shows.
type frame struct {
	locks         []distributed.Inspection // the first ones
	held, waiting int                      // all that are known
	complete      bool                     // they are all there are
	err           error
}

// first returns the first n locks, which are from now on those on the screen.
func (r *reader) first(n int, now time.Time) frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := frame{held: len(r.locks), complete: r.passed, err: r.err}
	all := make([]distributed.Inspection, 0, len(r.locks))
	for _, s := range r.locks {
		all = append(all, s.Inspection)
		v.waiting += show.Waiting(s.Inspection)
	}
	Sort(all, now)
	v.locks = all[:min(max(n, 0), len(all))]
	r.shown = r.shown[:0]
	for _, i := range v.locks {
		r.shown = append(r.shown, i.Key)
	}
	return v
}

// Sort puts the locks that most wait for first, and of these the longest held.
func Sort(all []distributed.Inspection, now time.Time) {
	slices.SortFunc(all, func(a, b distributed.Inspection) int {
		return cmp.Or(cmp.Compare(show.Waiting(b), show.Waiting(a)), cmp.Compare(show.Age(b, now), show.Age(a, now)), cmp.Compare(a.Key, b.Key))
	})
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
