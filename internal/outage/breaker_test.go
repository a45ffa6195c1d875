package outage_test

import (
	"context"
	"errors"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBackend is a backend whose Enter does what the test says.
type fakeBackend struct {
	distributed.Backend
	calls, at, peak atomic.Int32
	enter           func(ctx context.Context) error
	ping            func(ctx context.Context) error // nil: as enter
}

func (f *fakeBackend) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	f.calls.Add(1)
	if n := f.at.Add(1); n > f.peak.Load() {
		f.peak.Store(n)
	}
	defer f.at.Add(-1)
	return nil, nil, f.enter(ctx)
}

func (f *fakeBackend) Ping(ctx context.Context) error {
	if f.ping != nil {
		return f.ping(ctx)
	}
	return f.enter(ctx)
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
	k := outage.NewBreaker(f, log)
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
	require.EqualValues(t, 3, f.calls.Load())
	return k, f
}

var silent = slog.New(slog.DiscardHandler)

func TestOpensAfterFailuresInARowAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		k, f := open(t, slog.New(slog.NewTextHandler(&log, nil)))
		err := try(k)
		var r *outage.Refused
		require.ErrorAs(t, err, &r)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.EqualValues(t, 3, f.calls.Load(), "not asked")
		time.Sleep(r.RetryAfter + 1)
		require.ErrorIs(t, try(k), distributed.ErrUnavailable)
		require.EqualValues(t, 4, f.calls.Load(), "a probe")
		require.ErrorAs(t, try(k), &r, "open again")

		f.enter = up
		time.Sleep(r.RetryAfter + 1)
		for range 10 {
			require.NoError(t, try(k))
		}
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
			f.enter = func(context.Context) error { return err }
			for range 10 {
				require.ErrorIs(t, try(k), err)
			}
		}
		for range 10 { // two of three
			f.enter = down
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			f.enter = up
			require.NoError(t, try(k))
		}
		require.EqualValues(t, 70, f.calls.Load(), "none was refused")
	})
}

// While one probe hangs, others are refused at once; the probe ends long before the backend's own time-out.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, f := open(t, silent)
		f.enter = hang
		f.peak.Store(0)
		errs := make(chan error, 100)
		time.Sleep(time.Second)
		begin := time.Now()
		for range cap(errs) {
			go func() { errs <- try(k) }()
		}
		synctest.Wait()
		require.Len(t, errs, cap(errs)-1)
		for range cap(errs) {
			require.ErrorIs(t, <-errs, distributed.ErrUnavailable)
		}
		require.LessOrEqual(t, time.Since(begin), time.Second)
		require.EqualValues(t, 1, f.peak.Load())
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
		f.enter = down
		for range 3 {
			_ = try(k)
		}
		f.enter = up
		time.Sleep(time.Second)
		for range 100 {
			require.NoError(t, try(k))
			time.Sleep(dialTimeout / 50)
		}
	})
}

func TestPanicOfAProbeLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, f := open(t, silent)
		time.Sleep(time.Second)
		f.enter = func(context.Context) error { panic("probe") }
		require.Panics(t, func() { _ = try(k) })
		f.enter = up
		time.Sleep(time.Second)
		require.NoError(t, try(k))
	})
}

func TestProbeOfACallerInHasteSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, f := open(t, silent)
		time.Sleep(time.Second)
		f.enter = hang
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err := k.Enter(ctx, distributed.Request{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		f.enter = up
		require.NoError(t, try(k), "the next is the probe")
	})
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
			require.Less(t, time.Since(began), 4*time.Second)
		}
		time.Sleep(time.Minute) // without callers there are no pings
		before := f.calls.Load()
		f.enter = up
		require.NoError(t, try(k))
		require.Equal(t, before+1, f.calls.Load())
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

func TestHealthyPathAllocatesNothing(t *testing.T) {
	k := newBreaker(t, &fakeBackend{enter: up}, silent)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = try(k) }))
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
