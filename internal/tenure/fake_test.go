package tenure_test

import (
	"cmp"
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

// count is the number of Enters so far, and last the last one.
func (fb *fakeBackend) count() int {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return len(fb.asked)
}

func (fb *fakeBackend) last() distributed.Request {
	fb.mu.Lock()
	defer fb.mu.Unlock()
	return fb.asked[len(fb.asked)-1]
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

// grantsEmpty grants a lease without fences.
func grantsEmpty(fetch refill) answer {
	return func(fb *fakeBackend, _ context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
		l := fb.grant()
		l.empty(fetch)
		return l, nil, nil
	}
}

// refill is what fetching fences for a lease does.
type refill = func(ctx context.Context, l *fakeLease) error

// brings answers with n fences and err.
func brings(n int, err error) refill {
	return func(_ context.Context, l *fakeLease) error {
		l.set(func(l *fakeLease) { l.fences = n })
		return err
	}
}

// fakeLease is a lease that the test sets.
type fakeLease struct {
	backend *fakeBackend
	lost    chan struct{}

	// guarded by backend.mu
	until       time.Time
	unhealthy   bool
	contended   bool
	wanted      bool
	fences      int // left
	refill      refill
	abandoned   bool
	watcher     distributed.Watcher
	released    int // how often a release was begun
	answer      error
	answering   <-chan struct{} // the release is not answered before this is closed; nil: at once
	downgrading <-chan struct{} // the same of a downgrade; nil: there is none
	watching    func()          // called when Watch begins; nil: not
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

// empty takes all fences from the lease.
func (l *fakeLease) empty(fetch refill) {
	l.set(func(l *fakeLease) { l.fences, l.refill = 0, fetch })
}

func (l *fakeLease) Refill(ctx context.Context) error {
	return get(l, func(l *fakeLease) refill { return l.refill })(ctx, l)
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

func (l *fakeLease) Downgrade(ctx context.Context) error {
	if c := get(l, func(l *fakeLease) <-chan struct{} { return l.downgrading }); c != nil {
		return await(ctx, c)
	}
	return errors.ErrUnsupported
}

func (l *fakeLease) Watch(w distributed.Watcher, _ distributed.Lease) {
	if watching := get(l, func(l *fakeLease) func() { return l.watching }); watching != nil {
		watching()
	}
	l.set(func(l *fakeLease) { l.watcher = w })
}

func (l *fakeLease) watched() distributed.Watcher {
	return get(l, func(l *fakeLease) distributed.Watcher { return l.watcher })
}

func (l *fakeLease) lose() {
	close(l.lost)
	l.watched().LeaseLost(l)
}

func (l *fakeLease) event(change func(*fakeLease)) {
	l.set(change)
	l.watched().LeaseContended(l)
}

// want is the event that another instance is refused the lease, contend that one waits, uncontend that none does any more.
func (l *fakeLease) want()      { l.event(func(l *fakeLease) { l.wanted = true }) }
func (l *fakeLease) contend()   { l.event(func(l *fakeLease) { l.contended = true }) }
func (l *fakeLease) uncontend() { l.event(func(l *fakeLease) { l.contended = false }) }

func (l *fakeLease) Release(ctx context.Context) error {
	answering := get(l, func(l *fakeLease) <-chan struct{} { l.released++; return l.answering })
	if err := await(ctx, answering); err != nil {
		return err
	}
	return get(l, func(l *fakeLease) error { return l.answer })
}

// await waits until c is closed. nil: it does not wait.
func await(ctx context.Context, c <-chan struct{}) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	return cmp.Or(await(ctx, answering), answer)
}

func (s *fakePlace) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaves
}
