package outage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// errDecided is the cause of the end of an Enter's context when the backend is found to be away.
var errDecided = errors.New("the backend is away")

// Flight is the context of an Enter: the caller's, which ends as well when the judge decides that the backend is away
// (rule O1). It derives a context only if it is asked for its end, so a backend that answers at once costs no lock. Before
// and after the Enter it is the caller's context.
//
// A caller that passes a Flight of its own as the context of Enter, one after the other, saves an allocation for each.
type Flight struct {
	context.Context                         // the caller's
	judge           atomic.Pointer[judge]   // nil: no Enter is under way
	own             atomic.Pointer[derived] // nil: nobody has asked for its end yet
}

// derived is the context that the decision ends.
type derived struct {
	context.Context
	cancel context.CancelCauseFunc
}

// begin makes a Flight of the context of an Enter.
func begin(ctx context.Context, j *judge) *Flight {
	f, ok := ctx.(*Flight)
	if !ok || !f.judge.CompareAndSwap(nil, j) {
		f = &Flight{Context: ctx}
		f.judge.Store(j)
	}
	return f
}

// Done implements context.Context.
func (f *Flight) Done() <-chan struct{} {
	if own := f.derive(); own != nil {
		return own.Done()
	}
	return f.Context.Done()
}

// Err implements context.Context.
func (f *Flight) Err() error {
	if own := f.own.Load(); own != nil {
		return own.Err()
	}
	return f.Context.Err()
}

// Value implements context.Context. The derived one answers, so that contexts made of f find its cancellation without a
// goroutine.
func (f *Flight) Value(key any) any {
	if own := f.own.Load(); own != nil {
		return own.Value(key)
	}
	return f.Context.Value(key)
}

// derive returns nil if no Enter is under way.
func (f *Flight) derive() *derived {
	own, j := f.own.Load(), f.judge.Load()
	if own != nil || j == nil {
		return own
	}
	ctx, cancel := context.WithCancelCause(f.Context)
	own = &derived{ctx, cancel}
	if !f.own.CompareAndSwap(nil, own) { // somebody else has asked
		cancel(nil)
		return f.own.Load()
	}
	if !j.flights.add(j, own) {
		cancel(errDecided)
	}
	if f.judge.Load() == nil && f.own.CompareAndSwap(own, nil) { // Enter has returned before it could know of own
		j.flights.remove(own)
		cancel(nil)
	}
	return own
}

// canceled reports that the judge's decision has ended f.
func (f *Flight) canceled() bool {
	if o := f.judge.Load().current.Load(); o != nil && o.isAway() {
		return true
	}
	own := f.own.Load()
	return own != nil && context.Cause(own) == errDecided
}

// end is called when Enter has returned.
func (f *Flight) end() {
	j := f.judge.Swap(nil)
	j.returned()
	if f.own.Load() == nil {
		return
	}
	if own := f.own.Swap(nil); own != nil {
		j.flights.remove(own)
		own.cancel(nil)
	}
}

// flights are the contexts that the next decision ends.
type flights struct {
	mu  sync.Mutex
	all map[*derived]struct{} // guarded by mu
}

func (s *flights) add(j *judge, d *derived) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := j.current.Load(); o != nil && o.isAway() {
		return false
	}
	if s.all == nil {
		s.all = map[*derived]struct{}{}
	}
	s.all[d] = struct{}{}
	return true
}

func (s *flights) remove(d *derived) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, d)
}

// cancel ends all of them.
func (s *flights) cancel() {
	s.mu.Lock()
	all := s.all
	s.all = nil
	s.mu.Unlock()
	for d := range all {
		d.cancel(errDecided)
	}
}
