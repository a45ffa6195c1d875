package outage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
	"github.com/wllock/wllock/internal/testseed"
)

func TestMain(m *testing.M) {
	time.AfterFunc(mostTime, func() { restless(fmt.Sprintf("a test hangs for %v", mostTime)) })
	goleak.VerifyTestMain(m)
}

// mostTime is many times what the tests take with the race detector on a busy machine. In a bubble that never ends they hang for ever.
const mostTime = 8 * time.Minute

// fakeBackend is a backend whose Enter does what the test says.
type fakeBackend struct {
	distributed.Backend
	calls, at, peak atomic.Int32
	mu              sync.Mutex // guards all below
	enter           func(ctx context.Context) error
	ping            func(ctx context.Context) error // nil: as enter
}

func (f *fakeBackend) enters(enter func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.enter = enter
}

func (f *fakeBackend) pings(ping func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ping = ping
}

func (f *fakeBackend) does() (enter, ping func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enter, f.ping
}

func (f *fakeBackend) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	f.calls.Add(1)
	if n := f.at.Add(1); n > f.peak.Load() {
		f.peak.Store(n)
	}
	defer f.at.Add(-1)
	enter, _ := f.does()
	return nil, nil, enter(ctx)
}

func (f *fakeBackend) Ping(ctx context.Context) error {
	enter, ping := f.does()
	if ping != nil {
		return ping(ctx)
	}
	return enter(ctx)
}

func down(context.Context) error { return distributed.ErrUnavailable }
func up(context.Context) error   { return nil }

const dialTimeout = 5 * time.Second

// hang is a network that swallows everything.
func hang(ctx context.Context) error {
	select {
	case <-time.After(dialTimeout):
		return distributed.ErrUnavailable
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newBreaker(t testing.TB, f *fakeBackend, log *slog.Logger) *outage.Breaker {
	k := outage.NewBreaker(outage.Config{Backend: f, TTL: 5 * time.Second, Logger: log})
	t.Cleanup(k.Stop)
	return k
}

func try(k *outage.Breaker) error {
	_, _, err := k.Enter(context.Background(), distributed.Request{})
	return err
}

// open returns a breaker that is open, over a backend that is down.
func open(t testing.TB, log *slog.Logger) (*outage.Breaker, *fakeBackend) {
	f := &fakeBackend{enter: down}
	k := newBreaker(t, f, log)
	for range 3 {
		require.ErrorIs(t, try(k), distributed.ErrUnavailable)
	}
	require.LessOrEqual(t, f.calls.Load(), int32(3), "and what the judge has asked")
	f.calls.Store(0)
	return k, f
}

var silent = slog.New(slog.DiscardHandler)

func TestOpensAfterFailuresInARowAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		k, f := open(t, slog.New(slog.NewTextHandler(&log, nil)))
		for range 100 {
			var r *outage.Refused
			err := try(k)
			require.ErrorAs(t, err, &r)
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.Positive(t, r.RetryAfter)
			time.Sleep(100 * time.Millisecond)
		}
		require.Zero(t, f.calls.Load(), "not asked")

		f.enters(up)
		time.Sleep(300 * time.Millisecond)
		for range 10 {
			require.NoError(t, try(k))
		}
		synctest.Wait()
		require.Contains(t, log.String(), "backend is away")
		require.Contains(t, log.String(), "backend is back")
	})
}

func TestOnlyTheBackendsFailuresCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{enter: hang, ping: up}
		k := newBreaker(t, f, silent)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _, err := k.Enter(ctx, distributed.Request{})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for _, err := range []error{distributed.ErrHeld, errors.New("odd"), distributed.ErrClosed} {
			f.enters(func(context.Context) error { return err })
			for range 10 {
				require.ErrorIs(t, try(k), err)
			}
		}
		for range 10 { // two of three
			f.enters(down)
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			f.enters(up)
			require.NoError(t, try(k))
		}
		require.EqualValues(t, 70, f.calls.Load(), "none was refused")
	})
}

// No caller finds out whether the backend is back: the judge does, with a few questions per second that overlap little.
func TestNoCallIsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, f := open(t, silent)
		var pings, at atomic.Int32
		f.pings(func(ctx context.Context) error {
			pings.Add(1)
			at.Add(1)
			defer at.Add(-1)
			require.LessOrEqual(t, at.Load(), int32(8))
			return hang(ctx)
		})
		const seconds = 20
		for range seconds * 10 {
			began := time.Now()
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			require.Zero(t, time.Since(began))
			time.Sleep(time.Second / 10)
		}
		require.Zero(t, f.calls.Load())
		require.LessOrEqual(t, pings.Load(), int32(5*seconds))
		f.enters(up)
		f.pings(up)
		for began := time.Now(); try(k) != nil; time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(began), 2*time.Second)
		}
	})
}

// A request sent during the outage that fails late is no sign of another outage.
func TestStaleFailuresDoNotOpenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{enter: hang}
		k := newBreaker(t, f, silent)
		for range 20 {
			go func() { _ = try(k) }()
		}
		synctest.Wait()
		f.enters(down)
		for range 3 {
			_ = try(k)
		}
		f.enters(up)
		time.Sleep(time.Second)
		for range 100 {
			require.NoError(t, try(k))
			time.Sleep(dialTimeout / 50)
		}
	})
}

func TestPanicOfAnEnterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{enter: func(context.Context) error { panic("enter") }, ping: up}
		k := newBreaker(t, f, silent)
		require.Panics(t, func() { _ = try(k) })
		f.enters(up)
		require.NoError(t, try(k))
		time.Sleep(time.Second)
	}) // and no goroutine is left, without Stop
}

// TestOpensForCallersInHaste: an outage is noticed even if every caller leaves before the backend's own time-out.
func TestOpensForCallersInHaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{enter: hang}
		k := newBreaker(t, f, silent)
		began := time.Now()
		for refused := (*outage.Refused)(nil); refused == nil; {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, _, err := k.Enter(ctx, distributed.Request{})
			cancel()
			require.Error(t, err)
			errors.As(err, &refused)
			require.Less(t, time.Since(began), 5*time.Second)
		}
		f.enters(up)
		time.Sleep(2 * time.Second)
		require.NoError(t, try(k))
	})
}

// TestHasteAtAHealthyBackendIsNoFailure: callers may leave before a backend that works has answered.
func TestHasteAtAHealthyBackendIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error {
			select {
			case <-time.After(10 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		k := newBreaker(t, &fakeBackend{enter: slow}, silent)
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_, _, err := k.Enter(ctx, distributed.Request{})
			cancel()
			require.Equal(t, context.DeadlineExceeded, err)
		}
		require.NoError(t, try(k))
	})
}

// TestRecoversWhateverHappens: random moods of the backend, callers in haste, patient ones, and ones that wait for a
// grant; when it is well again, so is the breaker within two seconds.
func TestRecoversWhateverHappens(t *testing.T) {
	r := testseed.Rand(t)
	synctest.Test(t, func(t *testing.T) {
		var mood atomic.Int32
		moods := []func(context.Context) error{up, down, hang}
		k := newBreaker(t, &fakeBackend{enter: func(ctx context.Context) error { return moods[mood.Load()](ctx) }}, silent)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			var callers sync.WaitGroup
			for range 16 {
				callers.Go(func() {
					for ctx.Err() == nil {
						short, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(40*time.Millisecond))))
						if r.IntN(4) == 0 {
							canceled := k.Await()
							select {
							case <-canceled:
							case <-short.Done():
							}
							k.Awaited()
						}
						_, _, _ = k.Enter(short, distributed.Request{})
						cancel()
						time.Sleep(time.Millisecond)
					}
				})
			}
			for ctx.Err() == nil {
				mood.Store(r.Int32N(3))
				time.Sleep(50 * time.Millisecond)
			}
			callers.Wait()
			cancel()
			mood.Store(0)
			for began := time.Now(); try(k) != nil; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(began), 2*time.Second)
			}
		}
	})
}

// The one is the context that lets the decision end an Enter under way.
func TestHealthyPathAllocatesOnce(t *testing.T) {
	k := newBreaker(t, &fakeBackend{enter: up}, silent)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = try(k) }), 1.0)
}

// A question for more fences is ended by the decision as well, and not asked while the backend is away.
func TestOtherQuestionsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBreaker(t, &fakeBackend{enter: up, ping: hang}, silent)
		require.NoError(t, try(k))
		began := time.Now()
		for range 2 {
			err := k.Ask(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.LessOrEqual(t, time.Since(began), time.Second)
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	b.Run("healthy", func(b *testing.B) {
		k := newBreaker(b, &fakeBackend{enter: up}, silent)
		b.ReportAllocs()
		for b.Loop() {
			_ = try(k)
		}
	})
	b.Run("open", func(b *testing.B) {
		k, _ := open(b, silent)
		b.ReportAllocs()
		for b.Loop() {
			_ = try(k)
		}
	})
}

// TestAFlightIsTheCallersContextBetweenEnters: one serves several Enters, of which each has an end of its own.
func TestAFlightIsTheCallersContextBetweenEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first <-chan struct{}
		f := &fakeBackend{enter: func(ctx context.Context) error {
			first = ctx.Done()
			return nil
		}}
		k := newBreaker(t, f, silent)
		flight := &outage.Flight{Context: t.Context()}
		_, _, err := k.Enter(flight, distributed.Request{})
		require.NoError(t, err)
		<-first // Enter has returned
		require.NoError(t, flight.Err())
		require.Equal(t, t.Context().Done(), flight.Done())

		f.enters(hang)
		_, _, err = k.Enter(flight, distributed.Request{})
		refused := (*outage.Refused)(nil)
		require.ErrorAs(t, err, &refused)
		require.NoError(t, flight.Err())
	})
}
