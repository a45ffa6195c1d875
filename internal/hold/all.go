package hold

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/heldkey"
	"github.com/wllock/wllock/internal/report"
)

// All is what the holds of a DoAll have in common: the context that its function runs with, which the loss of any of them ends. The
// contexts of the holds are not used: they only lead from each lock to the one before (see Link).
//
// It is for the goroutine of the call, but for its context, and for degraded and check, which are called while the function runs. Nothing
// that these read changes by then.
type All struct {
	ownContext
	group *Group
	keys  []part

	before    context.Context      // of the hold that is added next
	innermost atomic.Pointer[Hold] // the last one, when all are held
	open      atomic.Int32         // the call itself, and its holds; at 0 the context is closed

	Foreign report.Wait // for all tries of the call
}

// part is one key of a DoAll.
type part struct {
	hold  *Hold
	outer bool // hold is that of an outer guard
	held  bool
	kept  bool          // until it was released
	wait  time.Duration // for the answer to the release; 0: none
}

// Init makes a ready for so many keys, which have numbers from 0 on, in the common order. It ends with Release.
func (a *All) Init(g *Group, parent context.Context, keys int) {
	a.group, a.parent, a.keys = g, parent, make([]part, keys)
	a.open.Store(1)
}

// Parent is the caller's context, with the holds that are nested.
func (a *All) Parent() context.Context { return a.parent }

// Nest says that key i is that of an outer hold, which is pinned. ctx carries it.
func (a *All) Nest(ctx context.Context, i int, h *Hold, wait time.Duration) {
	a.keys[i] = part{hold: h, outer: true, held: true, wait: wait}
	a.parent = ctx
}

// Add says which hold key i is to have. Own holds are added in order, when all others are nested.
func (a *All) Add(i int, h *Hold, wait time.Duration) {
	if a.before == nil {
		a.before = a.parent
	}
	h.together, h.parent, a.before = a, a.before, h
	a.keys[i] = part{hold: h, wait: wait}
}

// Own returns the hold of key i, unless that is nested: then nil.
func (a *All) Own(i int) *Hold {
	if p := &a.keys[i]; !p.outer {
		return p.hold
	}
	return nil
}

// Nested reports that key i is that of an outer hold.
func (a *All) Nested(i int) bool { return a.keys[i].outer }

// Trace starts the span of the acquisition, before any lock is held (rule T10), and returns the context to wait with.
func (a *All) Trace() context.Context {
	if !a.group.Observer.Traces() {
		return a
	}
	var names, keys []string
	for i := range a.keys {
		if h := a.Own(i); h != nil {
			names, keys = append(names, h.name.Text), append(keys, h.key)
		}
	}
	if keys == nil {
		return a
	}
	traced, spans := a.group.Observer.BeganAll(a, slices.Compact(names), keys, &a.Foreign)
	for i := range a.keys {
		if h := a.Own(i); h != nil {
			h.spans = spans
		}
	}
	return traced
}

// Entered says that the hold of key i is held.
func (a *All) Entered(i int) {
	a.keys[i].held = true
	a.open.Add(1)
}

// Lost returns the first key that has been lost, and -1 if none has.
func (a *All) Lost() int {
	return slices.IndexFunc(a.keys, func(p part) bool { return p.held && p.hold.Lost() })
}

// At returns the hold of key i.
func (a *All) At(i int) *Hold { return a.keys[i].hold }

// Began is for the moment when all keys are held, after so much time in all. ok: not all of them are nested.
func (a *All) Began(localWait, distributedWait time.Duration) (at time.Time, ok bool) {
	last := &a.keys[len(a.keys)-1]
	if last.outer {
		return at, false // then all are: an outer key comes before the others
	}
	a.innermost.Store(last.hold)
	if o := a.group.Observer; o.Traces() {
		o.GotAll(last.hold.report(), localWait, distributedWait)
	}
	return last.hold.use.Began(), true
}

// Inside returns the context for the function.
func (a *All) Inside() context.Context {
	last := a.innermost.Load()
	if last == nil { // all keys are nested
		return a.parent
	}
	return last.inside(a, &a.Foreign)
}

// Value implements context.Context.
func (a *All) Value(key any) any {
	if key == heldkey.Key {
		if h := a.innermost.Load(); h != nil {
			return h
		}
	}
	return a.value(key)
}

// Stopped reports that the loss of a lock, or Close, has ended the context.
func (a *All) Stopped() bool { return a.endedByHold() != nil }

// degraded reports that one of the locks has no lease.
func (a *All) degraded() bool {
	return slices.ContainsFunc(a.keys, func(p part) bool { return p.hold.use.Degraded() })
}

// check says what is wrong with one of the locks.
func (a *All) check() error {
	for i := range a.keys {
		h := a.keys[i].hold
		if err := h.Fault(); err != nil && h.Open() { // else it was released, and a nested guard keeps another one
			return err
		}
	}
	return nil
}

// Release releases what is held, the last first, and waits for all answers together where that was asked for. It passes all turns on
// before it waits for telemetry that is behind (rule T10).
func (a *All) Release() {
	var answers *sync.WaitGroup
	passed := false
	for i := len(a.keys) - 1; i >= 0; i-- {
		p := &a.keys[i]
		switch {
		case !p.held:
		case p.wait > 0:
			if answers == nil {
				answers = new(sync.WaitGroup)
			}
			answers.Go(func() { p.kept, _ = p.hold.leave(p.wait) })
		default:
			var pass bool
			p.kept, pass = p.hold.leave(0)
			passed = passed || pass
		}
	}
	a.closeOne()
	if answers != nil {
		answers.Wait()
	}
	if passed {
		a.group.Observer.Left(&a.Foreign)
	}
}

// Reasons are Hold.Reasons of the first hold that was not kept, or else of the first with any. nil: none has.
func (a *All) Reasons(err error) (*Hold, []error) {
	for _, kept := range []bool{false, true} {
		for i := range a.keys {
			p := &a.keys[i]
			if p.kept != kept {
				continue
			}
			if why := p.hold.Reasons(kept, err); why != nil {
				return p.hold, why
			}
		}
	}
	return nil, nil
}

// closeOne is called when the call has ended, and when one of its holds has, which nested guards may keep for longer.
func (a *All) closeOne() {
	if a.open.Add(-1) == 0 {
		a.close()
	}
}
