package outage

import (
	"context"
	"errors"
	"sync"
)

// errDecided is the cause of the end of an Enter's context when the backend is found to be away.
var errDecided = errors.New("the backend is away")

// flight is the context of one Enter: the caller's, which ends as well when the judge decides that the backend is away
// (rule O1). It derives a context only if it is asked for its end, so a backend that answers at once costs one allocation.
type flight struct {
	context.Context
	judge *judge

	mu     sync.Mutex
	own    context.Context // nil: nobody has asked yet
	cancel context.CancelCauseFunc
	over   bool // Enter has returned
}

// Done implements context.Context.
func (f *flight) Done() <-chan struct{} { return f.derive().Done() }

// Err implements context.Context.
func (f *flight) Err() error { return f.now().Err() }

// Value implements context.Context. The derived one answers, so that contexts made of f find its cancellation without a
// goroutine.
func (f *flight) Value(key any) any { return f.now().Value(key) }

func (f *flight) now() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own != nil {
		return f.own
	}
	return f.Context
}

func (f *flight) derive() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own == nil {
		f.own, f.cancel = context.WithCancelCause(f.Context)
		if f.over || !f.judge.flights.add(f) {
			f.cancel(errDecided)
		}
	}
	return f.own
}

// canceled reports that the judge's decision has ended f.
func (f *flight) canceled() bool {
	if o := f.judge.current.Load(); o != nil && o.isAway() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own != nil && context.Cause(f.own) == errDecided
}

// end is called when Enter has returned.
func (f *flight) end() {
	f.judge.returned()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.own != nil {
		f.judge.flights.remove(f)
		f.cancel(nil)
	}
}

// flights are the contexts that the next decision ends.
type flights struct {
	mu  sync.Mutex
	all map[*flight]struct{} // guarded by mu
}

func (s *flights) add(f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := f.judge.current.Load(); o != nil && o.isAway() {
		return false
	}
	if s.all == nil {
		s.all = map[*flight]struct{}{}
	}
	s.all[f] = struct{}{}
	return true
}

func (s *flights) remove(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, f)
}

// cancel ends all of them.
func (s *flights) cancel() {
	s.mu.Lock()
	all := s.all
	s.all = nil
	s.mu.Unlock()
	for f := range all {
		f.cancel(errDecided)
	}
}
