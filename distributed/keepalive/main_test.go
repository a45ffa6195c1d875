package keepalive_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 6 * time.Second // T/3 and T/6 are whole seconds

// lease is the minimum that a backend builds on Lease.
type lease struct {
	keepalive.Lease
}

func (*lease) NextFence() (uint64, bool)       { return 0, false }
func (*lease) Refill(context.Context) error    { return errors.ErrUnsupported }
func (*lease) Downgrade(context.Context) error { return errors.ErrUnsupported }
func (l *lease) Release(context.Context) error {
	if !l.Finish() {
		return distributed.ErrLeaseLost
	}
	return nil
}
func (l *lease) StartRelease() bool {
	l.Released(l.Release(context.Background()))
	return false
}

// service is a keeper whose renewals answer handles.
type service struct {
	*keepalive.Keeper
	mu     sync.Mutex // guards all below
	answer func(ctx context.Context, l *lease)
	asked  map[*lease][]time.Time // when the renewal of each lease was requested
}

func serve(answer func(ctx context.Context, l *lease)) *service {
	s := &service{answer: answer, asked: make(map[*lease][]time.Time)}
	s.Keeper = keepalive.NewKeeper(s.renew)
	return s
}

// serving runs a test in a bubble, with a service that answers so.
func serving(t *testing.T, answer func(ctx context.Context, l *lease), test func(t *testing.T, s *service)) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(answer)
		defer s.Close()
		test(t, s)
	})
}

func (s *service) renew(ctx context.Context, due []distributed.Lease) {
	now := time.Now()
	s.mu.Lock()
	answer := s.answer
	for _, w := range due {
		l := w.(*lease)
		s.asked[l] = append(s.asked[l], now)
	}
	s.mu.Unlock()
	for _, w := range due {
		answer(ctx, w.(*lease))
	}
}

// answers sets the answer from now on.
func (s *service) answers(answer func(ctx context.Context, l *lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// grant starts a lease with its claim window, as a backend does.
func (s *service) grant() *lease {
	l, now := new(lease), time.Now()
	window := distributed.ClaimWindow(ttl)
	s.Keep(&l.Lease, l, ttl, distributed.Validity(now, window), now.Add(window/3))
	return l
}

// watched is grant of a lease that a witness watches.
func (s *service) watched() (*lease, *witness) {
	l, w := s.grant(), new(witness)
	l.Watch(w, l)
	return l, w
}

func (s *service) times(l *lease) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked[l])
}

func renewed(_ context.Context, l *lease)   { l.Renewed(distributed.Validity(time.Now(), ttl)) }
func ended(_ context.Context, l *lease)     { l.End() }
func postponed(_ context.Context, l *lease) { l.Postpone() }
func unknown(context.Context, *lease)       {}
func hangs(ctx context.Context, _ *lease)   { <-ctx.Done() }

// witness records the events of a Watcher.
type witness struct {
	mu        sync.Mutex
	lost      []distributed.Lease
	contended []distributed.Lease
	released  []error
	renewed   []error
	sent      []time.Time // the renewals
}

func (w *witness) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *witness) LeaseLost(l distributed.Lease) { w.note(func() { w.lost = append(w.lost, l) }) }
func (w *witness) LeaseContended(l distributed.Lease) {
	w.note(func() { w.contended = append(w.contended, l) })
}
func (w *witness) LeaseReleased(_ distributed.Lease, err error) {
	w.note(func() { w.released = append(w.released, err) })
}
func (w *witness) LeaseRenewed(_ distributed.Lease, sent time.Time, err error) {
	w.note(func() { w.renewed, w.sent = append(w.renewed, err), append(w.sent, sent) })
}

// sleep returns when all has been done that happens in the meantime.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func isLost(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}
