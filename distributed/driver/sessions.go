package driver

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Class is what requests have in common that share a session. A lease can not last longer than its session without the service, and a lock
// whose holder has died is not free before the session has ended. So there is one for each TTL in use, which is one in most programs.
type Class struct {
	Kind string // keeps sessions of one TTL apart: a server
	TTL  time.Duration
}

// Living is the session of a Driver, which embeds a Task.
type Living[W any] interface {
	Session
	// Beat opens the session, or keeps it alive, and returns when to do so again, counted from the call. Never: when it is kicked. One Beat or
	// End is called at a time, the first at once.
	Beat(kicked bool) (next time.Duration)
	// End ends the session at the service, within a second or so. held: leases have not expired yet, and must not end before.
	End(held bool)

	task() *Task[W]
}

// Task keeps one session alive. It is over for good when its Ctx ends.
//
//	opening ── the first Beat that is answered ──▶ ready ── beats ──▶ Expire, Close, makes room ──▶ End ──▶ over
type Task[W any] struct {
	Class
	Lane  *Lane[W]
	Ctx   context.Context // ends with Expire, and before End is called
	Kicks chan struct{}   // capacity 1: a Beat is wanted now

	forget  func(*Task[W])
	cancel  context.CancelFunc
	expired atomic.Bool

	mu     sync.Mutex
	change chan struct{} // guarded by mu; closed and replaced by Changed
	tries  int           // guarded by mu; calls of Tried
	why    error         // guarded by mu; of the latest
}

func (t *Task[W]) task() *Task[W] { return t }

// Kick has Beat called soon.
func (t *Task[W]) Kick() {
	select {
	case t.Kicks <- struct{}{}:
	default:
	}
}

// Over reports that the session has ended, or is about to.
func (t *Task[W]) Over() bool { return t.Ctx.Err() != nil }

// Expired reports that Expire was called.
func (t *Task[W]) Expired() bool { return t.expired.Load() }

// Expire is called when the service says that the session has ended: places and leases are lost, and the next request opens another. It
// reports false if that was known, or the session is being ended.
func (t *Task[W]) Expire() bool {
	first := !t.Over() && !t.expired.Swap(true)
	if first {
		t.forget(t)
		t.Lane.Over() // first: then nothing is held when it ends
		t.cancel()
	}
	return first
}

// Changed wakes all in Await.
func (t *Task[W]) Changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.change)
	t.change = make(chan struct{})
}

// Tried notes what came of a Beat, and wakes all in Await.
func (t *Task[W]) Tried(err error) {
	t.mu.Lock()
	t.tries++
	t.why = err
	t.mu.Unlock()
	t.Changed()
}

// Fault implements Session: it is the error of the latest try that was noted.
func (t *Task[W]) Fault() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// Await waits until ready says so, which is asked again when something has changed. It returns ErrOver, the error of ready, or what
// late makes of the end of ctx.
func (t *Task[W]) Await(ctx context.Context, ready func() (bool, error), late func(error) error) error {
	for {
		t.mu.Lock()
		change := t.change // first: or a change could be missed
		t.mu.Unlock()
		if t.Over() {
			return keyless.Errorf("%s: %w", t.Lane.b.set.Name, ErrOver)
		}
		if is, err := ready(); is || err != nil {
			return err
		}
		select {
		case <-change:
		case <-t.Ctx.Done():
		case <-ctx.Done():
			return late(ctx.Err())
		}
	}
}

// Answered waits until ready says so, and has Beat called for it. It returns the error of a Beat that has failed meanwhile.
func (t *Task[W]) Answered(ctx context.Context, ready func() bool, late func(why, err error) error) error {
	before := -1
	var why error
	return t.Await(ctx, func() (bool, error) {
		is := ready()
		t.mu.Lock()
		defer t.mu.Unlock()
		if before < 0 {
			before = t.tries
		}
		switch why = t.why; {
		case is:
			return true, nil
		case why != nil && t.tries > before:
			return false, why
		}
		t.Kick()
		return false, nil
	}, func(err error) error { return late(why, err) })
}

// rest waits until then, or for a kick.
func (t *Task[W]) rest(until time.Time, next time.Duration) (kicked bool) {
	var timer <-chan time.Time
	if next != Never {
		timer = time.After(time.Until(until))
	}
	select {
	case <-timer:
	case <-t.Kicks:
		return true
	case <-t.Ctx.Done():
	}
	return false
}

// Sessions are those of a Backend.
type Sessions[W any, S Living[W]] struct {
	b     *Backend[W]
	rules SessionRules
	open  func(*Task[W]) (S, error)
	tasks sync.WaitGroup // Add under mu, unless closed

	mu     sync.Mutex
	all    []S  // guarded by mu; that are not over
	closed bool // guarded by mu
}

// SessionRules say how many sessions there are.
type SessionRules struct {
	// Own is how many TTLs of a Kind have a session of their own: MaxSessions, if it is 0. From then on a TTL is served by the longest
	// below it.
	Own int
	// Less is the TTL of a new session, of which there are so many, for one that no other serves. nil: it has its own, and an
	// unused one ends for it. So there are more than MaxSessions only if so many are in use at a time.
	Less func(ttl time.Duration, there int) time.Duration
}

const (
	// MaxSessions bounds the sessions of a Backend, of each Kind, whose callers use many TTLs.
	MaxSessions = 8
	// closeGrace is how long Close waits for what is being dropped. What is left costs others a claim window, or the TTL.
	closeGrace = time.Second
)

// NewSessions returns those of a Backend: none yet. open makes one, and must not block: its Beat does what it takes. It is called with a
// mutex held.
func NewSessions[W any, S Living[W]](b *Backend[W], rules SessionRules, open func(*Task[W]) (S, error)) *Sessions[W, S] {
	if rules.Own == 0 {
		rules.Own = MaxSessions
	}
	return &Sessions[W, S]{b: b, rules: rules, open: open}
}

// Find returns the session of a class, which may be new, or the one that serves for it. One that ends before it is used is ErrOver to the
// Lane, and the Backend asks for another.
func (p *Sessions[W, S]) Find(c Class) (S, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same, below, there := p.match(c)
	switch {
	case p.closed:
	case same != nil:
		return *same, nil
	case there >= p.rules.Own && below != nil:
		return *below, nil
	case there >= p.rules.Own && p.rules.Less != nil:
		c.TTL = p.rules.Less(c.TTL, there)
	case there >= p.rules.Own:
		p.makeRoom(c.Kind)
	}
	return p.begin(c)
}

// Any returns the oldest session of the kind, for a question that is about no lease, or begins one of the class. It is not ended for
// others.
func (p *Sessions[W, S]) Any(c Class) (S, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.oldest(c.Kind); i >= 0 && !p.closed {
		return p.all[i], nil
	}
	return p.begin(c)
}

// All returns those that are not over.
func (p *Sessions[W, S]) All() []S {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// match returns the session of a class, and the one with the longest TTL below it; nil: there is none. The caller holds mu.
func (p *Sessions[W, S]) match(c Class) (same, below *S, there int) {
	for i, s := range p.all {
		t := s.task()
		if t.Kind != c.Kind {
			continue
		}
		there++
		switch {
		case t.TTL == c.TTL:
			same = &p.all[i]
		case t.TTL < c.TTL && (below == nil || t.TTL > (*below).task().TTL):
			below = &p.all[i]
		}
	}
	return same, below, there
}

func (p *Sessions[W, S]) oldest(kind string) int {
	return slices.IndexFunc(p.all, func(s S) bool { return s.task().Kind == kind })
}

// begin begins a session. The caller holds mu.
func (p *Sessions[W, S]) begin(c Class) (s S, err error) {
	if p.closed {
		return s, distributed.ErrClosed
	}
	t := &Task[W]{Class: c, Kicks: make(chan struct{}, 1), change: make(chan struct{}), forget: p.forget}
	t.Ctx, t.cancel = context.WithCancel(context.Background())
	t.Lane = p.b.NewLane(t.Ctx, nil)
	if s, err = p.open(t); err != nil {
		t.cancel()
		t.Lane.Shut()
		return s, err
	}
	t.Lane.session = s // before anybody can find it
	p.all = append(p.all, s)
	p.tasks.Go(func() { p.run(s) })
	return s, nil
}

// run is the task of a session.
func (p *Sessions[W, S]) run(s S) {
	t, kicked := s.task(), false
	for !t.Over() {
		sent := time.Now()
		next := s.Beat(kicked)
		kicked = t.rest(sent.Add(next), next)
	}
	s.End(t.Lane.holds())
	t.Lane.Shut()
}

// makeRoom ends the session with the longest TTL that nobody uses: those that stay serve more. The caller holds mu.
func (p *Sessions[W, S]) makeRoom(kind string) {
	others := slices.Clone(p.all[p.oldest(kind)+1:])
	slices.SortFunc(others, func(a, b S) int { return cmp.Compare(b.task().TTL, a.task().TTL) })
	for _, s := range others {
		if s.task().Kind == kind && p.retire(s) {
			return
		}
	}
}

// retire ends a session if nobody uses it. Whoever has found it, and is about to use it, finds another, which is no longer this one (see
// Backend.begin, and rule C5). The caller holds mu.
func (p *Sessions[W, S]) retire(s S) (is bool) {
	if is = s.task().Lane.shutUnused(); is {
		p.remove(s.task())
		s.task().cancel()
	}
	return is
}

// forget takes out a session that is over.
func (p *Sessions[W, S]) forget(t *Task[W]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(t)
}

// remove is forget. The caller holds mu.
func (p *Sessions[W, S]) remove(t *Task[W]) {
	p.all = slices.DeleteFunc(p.all, func(s S) bool { return s.task() == t })
}

// Close ends all sessions, after the Enters under way and what is being dropped, if that may be answered (rule C6).
func (p *Sessions[W, S]) Close() {
	p.mu.Lock()
	p.closed = true
	all := slices.Clone(p.all)
	p.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(func() {
			t := s.task()
			if s.Healthy(time.Now()) {
				t.Lane.Flush(closeGrace)
			}
			t.cancel()
		})
	}
	ending.Wait()
	p.tasks.Wait()
}
