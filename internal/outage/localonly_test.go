package outage_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
)

const ttl = time.Second

// fakeLease lasts for a fixed time and is not renewed.
type fakeLease struct {
	distributed.Lease
	mu       sync.Mutex
	until    time.Time
	watcher  distributed.Watcher
	refill   error
	released int
}

func newFakeLease(d time.Duration) *fakeLease { return &fakeLease{until: time.Now().Add(d)} }

func (p *fakeLease) NextFence() (uint64, bool)                        { return 7, true }
func (p *fakeLease) Refill(context.Context) error                     { return p.refill }
func (p *fakeLease) Until() time.Time                                 { return p.until }
func (p *fakeLease) Healthy() bool                                    { return !distributed.Over(time.Now(), p.until) }
func (p *fakeLease) Contended() bool                                  { return false }
func (p *fakeLease) Abandon()                                         {}
func (p *fakeLease) Lost() <-chan struct{}                            { return nil }
func (p *fakeLease) Watch(w distributed.Watcher, _ distributed.Lease) { p.watcher = w }
func (p *fakeLease) Release(context.Context) error {
	p.StartRelease()
	return nil
}

func (p *fakeLease) At(now time.Time) (time.Duration, bool) {
	left := distributed.Left(now, p.until)
	return left, left > 0
}

func (p *fakeLease) StartRelease() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released++
	return true
}

// losses is a Watcher that counts them.
type losses struct{ n atomic.Int32 }

func (l *losses) LeaseLost(distributed.Lease)                      { l.n.Add(1) }
func (l *losses) LeaseContended(distributed.Lease)                 {}
func (l *losses) LeaseReleased(distributed.Lease, error)           {}
func (l *losses) LeaseRenewed(distributed.Lease, time.Time, error) {}

// newLocal returns a LocalOnly over a backend that works.
func newLocal(t *testing.T) (*outage.LocalOnly, *fakeBackend) {
	b := newFake(up, up)
	l := outage.NewLocalOnly(outage.Config{Backend: b, TTL: ttl, Logger: silent})
	t.Cleanup(l.Stop)
	return l, b
}

// overBackend runs f with a LocalOnly over a backend that works, in a bubble.
func overBackend(t *testing.T, f func(t *testing.T, l *outage.LocalOnly, b *fakeBackend)) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocal(t)
		f(t, l, b)
	})
}

// fail makes an Enter fail, so that l knows that the backend is away.
func fail(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
	failWith(t, l, b, down)
}

// failWith has the questions that follow answered so: the first is asked while Enter returns.
func failWith(t *testing.T, l *outage.LocalOnly, b *fakeBackend, ping func(context.Context) error) {
	b.does(down)
	b.ping.Store(&ping)
	lease, place, err := l.Enter(t.Context(), distributed.Request{})
	require.NoError(t, err)
	require.Nil(t, lease)
	require.NotNil(t, place)
}

func isDegraded(l distributed.Lease) bool { return l.(interface{ Degraded() bool }).Degraded() }

// An expired lease is degraded only by what was known before its end, and what it has once said stays so.
func TestLeaseIsDegradedByWhatWasKnownBeforeItsEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		lasts    time.Duration
		before   func(t *testing.T, l *outage.LocalOnly, b *fakeBackend)
		degraded bool
	}{
		{"the backend is away", ttl, fail, true},
		{"nothing is known", ttl, func(*testing.T, *outage.LocalOnly, *fakeBackend) {}, false},
		{"it has answered since", ttl, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
			fail(t, l, b)
			time.Sleep(ttl / 4)
			b.does(up)
		}, false},
		{"stopped since", 4 * ttl, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
			failWith(t, l, b, func(context.Context) error { // nothing happens in a process that is stopped
				time.Sleep(5 * ttl)
				return distributed.ErrUnavailable
			})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
				inner, w := newFakeLease(c.lasts), new(losses)
				p := l.Adopt(inner)
				p.Watch(w, p)
				c.before(t, l, b)
				time.Sleep(time.Until(inner.until) - time.Nanosecond)
				require.False(t, isDegraded(p))
				time.Sleep(time.Nanosecond)
				require.Equal(t, c.degraded, isDegraded(p))
				fail := time.Now()
				for time.Since(fail) < 2*ttl { // later knowledge, of whatever kind, changes nothing
					b.does(down)
					_, _, _ = l.Enter(t.Context(), distributed.Request{})
					require.Equal(t, c.degraded, isDegraded(p))
					require.Equal(t, c.degraded, !distributed.Over(time.Now(), p.Until()))
					left, _ := p.At(time.Now())
					require.Equal(t, c.degraded, left > 0)
					time.Sleep(ttl / 10)
				}
				p.(distributed.Watcher).LeaseLost(inner) // the timer comes late
				p.(distributed.Watcher).LeaseLost(inner)
				require.EqualValues(t, map[bool]int{true: 0, false: 1}[c.degraded], w.n.Load())
			})
		})
	}
}

// A failure that becomes known a nanosecond after the end of the lease is too late.
func TestFailureAfterTheEndIsTooLate(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		p := l.Adopt(newFakeLease(ttl))
		time.Sleep(ttl)
		fail(t, l, b)
		require.False(t, isDegraded(p))
	})
}

// A request that was sent before the backend's return and fails after it says nothing of the time since.
func TestStaleFailureIsNoOutage(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		stale := make(chan distributed.Place)
		b.does(func(context.Context) error { time.Sleep(ttl / 5); return distributed.ErrUnavailable })
		go func() {
			_, place, _ := l.Enter(t.Context(), distributed.Request{})
			stale <- place
		}()
		synctest.Wait()
		fail(t, l, b)
		b.does(up)
		place := <-stale
		_, open := <-place.Granted()
		require.False(t, open, "enter again")
		pings := b.pings.Load()
		time.Sleep(ttl)
		require.Equal(t, pings, b.pings.Load())
	}) // and no goroutine is left, without Stop
}

// A backend that answers and refuses is not away: its errors are passed on.
func TestRefusalsArePassedOn(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		full := errors.Join(distributed.ErrUnavailable, errors.New("out of memory"))
		refuse := func(context.Context) error { return full }
		b.enter.Store(&refuse)
		var err error
		for range 5 {
			var place distributed.Place
			if _, place, err = l.Enter(t.Context(), distributed.Request{}); err != nil {
				break
			}
			<-place.Granted()
		}
		require.ErrorIs(t, err, full)
		b.does(up)
		synctest.Wait() // it is pinged
		lease, _, err := l.Enter(t.Context(), distributed.Request{})
		require.NoError(t, err)
		require.NotNil(t, lease)
	})
}

// Pings that fail now and then, while nobody enters, are no refusals: in a real outage callers then wait.
func TestLatePingsAreNoRefusals(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		canceled := l.Await()
		for range 10 {
			b.does(down)
			time.Sleep(ttl / 4)
			b.does(up)
			time.Sleep(ttl / 4)
		}
		l.Awaited()
		fail(t, l, b)
		require.False(t, isClosed(canceled), "it has never been away for long")
		time.Sleep(ttl)
		<-canceled
	})
}

// Callers that never wait as long as the backend takes to fail are served all the same.
func TestImpatientCallersLearnOfAnOutage(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		_, _, err := l.Enter(t.Context(), distributed.Request{})
		require.NoError(t, err)
		b.does(hang)
		begin := time.Now()
		for !l.Degraded() {
			ctx, cancel := context.WithTimeout(t.Context(), ttl/50)
			_, _, _ = l.Enter(ctx, distributed.Request{})
			cancel()
			time.Sleep(ttl / 50)
		}
		require.LessOrEqual(t, time.Since(begin), 3*ttl/2)
		b.does(up)
		time.Sleep(ttl / 2)
		require.False(t, l.Degraded())
	})
}

// A lease that needs fences during an outage is released, and its caller gets a place.
func TestRefillDuringAnOutage(t *testing.T) {
	overBackend(t, func(t *testing.T, l *outage.LocalOnly, b *fakeBackend) {
		inner := newFakeLease(ttl)
		p := l.Adopt(inner)
		b.does(down)
		inner.refill = distributed.ErrUnavailable
		require.ErrorIs(t, p.Refill(t.Context()), distributed.ErrLeaseLost)
		time.Sleep(ttl / 5) // until it is known to be away
		_, place, err := l.Enter(t.Context(), distributed.Request{Prev: p})
		require.NoError(t, err)
		require.NotNil(t, place)
		require.Equal(t, 1, inner.released)
		require.Zero(t, b.enters.Load(), "the backend is not asked")
		time.Sleep(2 * ttl)
		lease, _, err := l.Enter(t.Context(), distributed.Request{})
		require.NoError(t, err)
		require.ErrorIs(t, lease.Refill(t.Context()), errors.ErrUnsupported)
		require.False(t, isDegraded(p), "released before it expired")
	})
}

// Concurrent looks at the moment of the end, and an Abandon, all see one outcome.
func TestLeaseEndHasOneOutcome(t *testing.T) {
	for range 200 {
		l, b := newLocal(t)
		fail(t, l, b)
		inner, w := newFakeLease(time.Millisecond), new(losses)
		p := l.Adopt(inner)
		p.Watch(w, p)
		said := make([]bool, 4)
		var wg sync.WaitGroup
		time.Sleep(time.Until(inner.until))
		for i := range said {
			wg.Go(func() {
				switch i {
				case 0:
					p.(distributed.Watcher).LeaseLost(inner)
				case 1:
					p.Abandon()
				}
				said[i] = isDegraded(p)
			})
		}
		wg.Wait()
		for _, s := range said {
			require.Equal(t, said[0], s)
		}
		require.EqualValues(t, map[bool]int{true: 0, false: 1}[said[0]], w.n.Load())
		p.StartRelease()
		l.Stop()
	}
}
