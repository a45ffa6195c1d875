package tenure_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// fakeBackend answers as the test scripts it. Without a script it grants a lease to every caller.
type fakeBackend struct {
	mu     sync.Mutex
	asked  []distributed.Request
	now    int // Enters under way
	most   int
	script []answer
	deaf   bool // its leases hear of no refusal
	fence  uint64
	leases []*fakeLease
	places []*fakePlace
}

// answer is one answer to Enter.
type answer func(fb *fakeBackend, ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error)

func (fb *fakeBackend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	fb.mu.Lock()
	fb.asked = append(fb.asked, req)
	fb.now++
	fb.most = max(fb.most, fb.now)
	next := grants
	if len(fb.script) > 0 {
		next, fb.script = fb.script[0], fb.script[1:]
	}
	fb.mu.Unlock()
	defer func() {
		fb.mu.Lock()
		defer fb.mu.Unlock()
		fb.now--
	}()
	return next(fb, ctx, req)
}

func (fb *fakeBackend) Ping(context.Context) error { return nil }
func (fb *fakeBackend) Close() error               { return nil }

// answerWith sets the next answers.
func (fb *fakeBackend) answerWith(script ...answer) {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	fb.script = script
}

// enters returns the number of Enters so far and the last one.
func (fb *fakeBackend) enters() (n int, last distributed.Request) {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return len(fb.asked), fb.asked[len(fb.asked)-1]
}

// mostEnters is the greatest number of concurrent Enters.
func (fb *fakeBackend) mostEnters() int {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return fb.most
}

// lease returns lease number i; place, place number i.
func (fb *fakeBackend) lease(i int) *fakeLease {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return fb.leases[i]
}

func (fb *fakeBackend) place(i int) *fakePlace {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return fb.places[i]
}

func (fb *fakeBackend) grant() *fakeLease {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	l := &fakeLease{backend: fb, until: time.Now().Add(ttl), fences: 1000, lost: make(chan struct{})}
	fb.leases = append(fb.leases, l)
	return l
}

func grants(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	return fb.grant(), nil, nil
}

func queues(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	s := &fakePlace{granted: make(chan distributed.Lease, 1)}
	fb.places = append(fb.places, s)
	return nil, s, nil
}

// fails answers with err.
func fails(err error) answer {
	return func(*fakeBackend, context.Context, distributed.Request) (distributed.Lease, distributed.Place, error) {
		return nil, nil, err
	}
}

// hangs does not answer before ctx ends.
func hangs(_ *fakeBackend, ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	<-ctx.Done()
	return nil, nil, errors.Join(distributed.ErrUnavailable, ctx.Err())
}

// after gives the answer when c is closed.
func after(c <-chan struct{}, a answer) answer {
	return func(fb *fakeBackend, ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
		<-c
		return a(fb, ctx, req)
	}
}

// fakeLease is a lease that the test sets.
type fakeLease struct {
	backend *fakeBackend
	lost    chan struct{}

	// guarded by backend.mu
	until     time.Time
	unhealthy bool
	contended bool
	wanted    bool
	fences    int // left
	refill    func(ctx context.Context) error
	abandoned bool
	watcher   distributed.Watcher
	released  int // how often a release was begun
	answer    error
	answering <-chan struct{} // the release is not answered before this is closed; nil: at once
	watching  func()          // called when Watch begins; nil: not
}

// set changes the lease.
func (l *fakeLease) set(change func(*fakeLease)) {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	change(l)
}

// get reads from the lease.
func get[V any](l *fakeLease, look func(*fakeLease) V) V {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	return look(l)
}

func (l *fakeLease) releases() int { return get(l, func(l *fakeLease) int { return l.released }) }
func (l *fakeLease) wasAbandoned() bool {
	return get(l, func(l *fakeLease) bool { return l.abandoned })
}

func (l *fakeLease) NextFence() (uint64, bool) {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	if l.fences == 0 {
		return 0, false
	}
	l.fences--
	l.backend.fence++
	return l.backend.fence, true
}

func (l *fakeLease) Refill(ctx context.Context) error {
	return get(l, func(l *fakeLease) func(context.Context) error { return l.refill })(ctx)
}

func (l *fakeLease) Until() time.Time      { return get(l, func(l *fakeLease) time.Time { return l.until }) }
func (l *fakeLease) Healthy() bool         { return get(l, func(l *fakeLease) bool { return !l.unhealthy }) }
func (l *fakeLease) Contended() bool       { return get(l, func(l *fakeLease) bool { return l.contended }) }
func (l *fakeLease) Wanted() bool          { return get(l, func(l *fakeLease) bool { return l.wanted }) }
func (l *fakeLease) HearsRefusals() bool   { return !l.backend.deaf }
func (l *fakeLease) Abandon()              { l.set(func(l *fakeLease) { l.abandoned = true }) }
func (l *fakeLease) Lost() <-chan struct{} { return l.lost }
func (l *fakeLease) RenewBy(time.Time)     {}

func (l *fakeLease) LostError() *distributed.LostError { return nil }

func (l *fakeLease) Downgrade(context.Context) error { return errors.ErrUnsupported }

func (l *fakeLease) Watch(w distributed.Watcher, _ distributed.Lease) {
	if watching := get(l, func(l *fakeLease) func() { return l.watching }); watching != nil {
		watching()
	}
	l.set(func(l *fakeLease) { l.watcher = w })
}

func (l *fakeLease) watched() distributed.Watcher {
	return get(l, func(l *fakeLease) distributed.Watcher { return l.watcher })
}

// lose and contend are events of the lease.
func (l *fakeLease) lose() {
	close(l.lost)
	l.watched().LeaseLost(l)
}

// want is what happens when another instance is refused the lease.
func (l *fakeLease) want() {
	l.set(func(l *fakeLease) { l.wanted = true })
	l.watched().LeaseContended(l)
}

func (l *fakeLease) contend() {
	l.set(func(l *fakeLease) { l.contended = true })
	l.watched().LeaseContended(l)
}

// uncontend is the event that nobody waits any more.
func (l *fakeLease) uncontend() {
	l.set(func(l *fakeLease) { l.contended = false })
	l.watched().LeaseContended(l)
}

func (l *fakeLease) Release(ctx context.Context) error {
	answering := get(l, func(l *fakeLease) <-chan struct{} { l.released++; return l.answering })
	if answering != nil {
		select {
		case <-answering:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return get(l, func(l *fakeLease) error { return l.answer })
}

func (l *fakeLease) At(now time.Time) (time.Duration, bool) {
	return distributed.Left(now, l.Until()), l.Healthy()
}

func (l *fakeLease) StartRelease() bool {
	if get(l, func(l *fakeLease) bool { return l.answering == nil }) {
		l.watched().LeaseReleased(l, l.Release(context.Background()))
		return false
	}
	go func() { l.watched().LeaseReleased(l, l.Release(context.Background())) }()
	return false
}

// deafLease is one whose downgrade gets no answer.
type deafLease struct{ *fakeLease }

func grantsDeaf(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	return &deafLease{fb.grant()}, nil, nil
}

func (l *deafLease) Downgrade(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (l *deafLease) Watch(w distributed.Watcher, _ distributed.Lease) {
	l.fakeLease.Watch(deafWatcher{w, l}, l)
}

// deafWatcher passes on what happens to the inner lease as what happens to l.
type deafWatcher struct {
	distributed.Watcher
	l *deafLease
}

func (w deafWatcher) LeaseLost(distributed.Lease)                  { w.Watcher.LeaseLost(w.l) }
func (w deafWatcher) LeaseContended(distributed.Lease)             { w.Watcher.LeaseContended(w.l) }
func (w deafWatcher) LeaseReleased(_ distributed.Lease, err error) { w.Watcher.LeaseReleased(w.l, err) }

// fakePlace is a place.
type fakePlace struct {
	granted chan distributed.Lease

	mu        sync.Mutex
	leaves    int
	answer    error
	answering <-chan struct{} // Leave is not answered before this is closed; nil: at once
}

func (s *fakePlace) Granted() <-chan distributed.Lease { return s.granted }

func (s *fakePlace) Holder() string { return "" }

func (s *fakePlace) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.leaves++
	answering, answer := s.answering, s.answer
	s.mu.Unlock()
	if answering != nil {
		select {
		case <-answering:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return answer
}

func (s *fakePlace) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaves
}
