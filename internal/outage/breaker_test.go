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

// fakeBackend is a backend that reports no exchanges. It does what the test says.
type fakeBackend struct {
	distributed.Backend
	lease         *fakeLease // the same for all Enters
	enters, pings atomic.Int32
	enter, ping   atomic.Pointer[func(ctx context.Context) error]
}

func newFake(enter, ping func(context.Context) error) *fakeBackend {
	b := &fakeBackend{lease: newFakeLease(time.Hour)}
	b.enter.Store(&enter)
	b.ping.Store(&ping)
	return b
}

// does sets the answer to both questions.
func (b *fakeBackend) does(f func(context.Context) error) {
	b.enter.Store(&f)
	b.ping.Store(&f)
}

func (b *fakeBackend) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	b.enters.Add(1)
	if err := (*b.enter.Load())(ctx); err != nil {
		return nil, nil, err
	}
	return b.lease, nil, nil
}

func (b *fakeBackend) Ping(ctx context.Context) error {
	b.pings.Add(1)
	return (*b.ping.Load())(ctx)
}

func down(context.Context) error { return distributed.ErrUnavailable }
func up(context.Context) error   { return nil }

const (
	dialTimeout = 5 * time.Second
	long        = 5 * time.Second // a TTL
)

// hang is a network that swallows everything.
var hang = takes(dialTimeout, distributed.ErrUnavailable)

// takes answers with err after d.
func takes(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newBreaker(t testing.TB, f *fakeBackend, log *slog.Logger) *outage.Breaker {
	k := outage.NewBreaker(outage.Config{Backend: f, TTL: long, Logger: log})
	t.Cleanup(k.Stop)
	return k
}

func try(k *outage.Breaker) error {
	_, _, err := k.Enter(context.Background(), distributed.Request{})
	return err
}

// open returns a breaker that is open, over a backend that is down.
func open(t testing.TB, log *slog.Logger) (*outage.Breaker, *fakeBackend) {
	f := newFake(down, down)
	k := newBreaker(t, f, log)
	for range 3 {
		require.ErrorIs(t, try(k), distributed.ErrUnavailable)
	}
	require.LessOrEqual(t, f.enters.Load(), int32(3), "and what the judge has asked")
	f.enters.Store(0)
	return k, f
}

var silent = slog.New(slog.DiscardHandler)

func logTo(log *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }

func TestOpensAfterFailuresInARowAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		k, f := open(t, logTo(&log))
		for range 100 {
			var r *outage.Refused
			err := try(k)
			require.ErrorAs(t, err, &r)
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.Positive(t, r.RetryAfter)
			time.Sleep(100 * time.Millisecond)
		}
		require.Zero(t, f.enters.Load(), "not asked")

		f.does(up)
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
	f := newFake(hang, up)
	judged(t, "", f, long, func(t *testing.T, k *outage.Breaker) {
		enters := func(enter func(context.Context) error) { f.enter.Store(&enter) }
		for range 10 {
			require.ErrorIs(t, enter(k, time.Second), context.DeadlineExceeded)
		}
		for _, err := range []error{distributed.ErrHeld, errors.New("odd"), distributed.ErrClosed} {
			enters(func(context.Context) error { return err })
			for range 10 {
				require.ErrorIs(t, try(k), err)
			}
		}
		for range 10 { // two of three
			enters(down)
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			enters(up)
			require.NoError(t, try(k))
		}
		require.EqualValues(t, 70, f.enters.Load(), "none was refused")
	})
}

// No caller finds out whether the backend is back: the judge does, with a few questions per second that overlap little.
func TestNoCallIsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, f := open(t, silent)
		var pings, at atomic.Int32
		ping := func(ctx context.Context) error {
			pings.Add(1)
			at.Add(1)
			defer at.Add(-1)
			require.LessOrEqual(t, at.Load(), int32(8))
			return hang(ctx)
		}
		f.ping.Store(&ping)
		const seconds = 20
		for range seconds * 10 {
			began := time.Now()
			require.ErrorIs(t, try(k), distributed.ErrUnavailable)
			require.Zero(t, time.Since(began))
			time.Sleep(time.Second / 10)
		}
		require.Zero(t, f.enters.Load())
		require.LessOrEqual(t, pings.Load(), int32(5*seconds))
		f.does(up)
		for began := time.Now(); try(k) != nil; time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(began), 2*time.Second)
		}
	})
}

// A request sent during the outage that fails late is no sign of another outage.
func TestStaleFailuresDoNotOpenAnew(t *testing.T) {
	f := newFake(hang, hang)
	judged(t, "", f, long, func(t *testing.T, k *outage.Breaker) {
		for range 20 {
			go func() { _ = try(k) }()
		}
		synctest.Wait()
		f.does(down)
		for range 3 {
			_ = try(k)
		}
		f.does(up)
		time.Sleep(time.Second)
		for range 100 {
			require.NoError(t, try(k))
			time.Sleep(dialTimeout / 50)
		}
	})
}

func TestPanicOfAnEnterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(context.Context) error { panic("enter") }, up)
		k := newBreaker(t, f, silent)
		require.Panics(t, func() { _ = try(k) })
		f.does(up)
		require.NoError(t, try(k))
		time.Sleep(time.Second)
	}) // and no goroutine is left, without Stop
}

// TestOpensForCallersInHaste: an outage is noticed even if every caller leaves before the backend's own time-out.
func TestOpensForCallersInHaste(t *testing.T) {
	f := newFake(hang, hang)
	judged(t, "", f, long, func(t *testing.T, k *outage.Breaker) {
		began := time.Now()
		for refused := (*outage.Refused)(nil); refused == nil; {
			err := enter(k, 100*time.Millisecond)
			require.Error(t, err)
			errors.As(err, &refused)
			require.Less(t, time.Since(began), 5*time.Second)
		}
		f.does(up)
		time.Sleep(2 * time.Second)
		require.NoError(t, try(k))
	})
}

// TestHasteAtAHealthyBackendIsNoFailure: callers may leave before a backend that works has answered.
func TestHasteAtAHealthyBackendIsNoFailure(t *testing.T) {
	slow := takes(10*time.Millisecond, nil)
	judged(t, "", newFake(slow, slow), long, func(t *testing.T, k *outage.Breaker) {
		for range 1000 {
			require.Equal(t, context.DeadlineExceeded, enter(k, 5*time.Millisecond))
		}
		require.NoError(t, try(k))
	})
}

// TestRecoversWhateverHappens: random moods of the backend, callers in haste, patient ones, and ones that wait for a
// grant; when it is well again, so is the breaker within two seconds.
func TestRecoversWhateverHappens(t *testing.T) {
	r, f := testseed.Rand(t), newFake(up, up)
	judged(t, "", f, long, func(t *testing.T, k *outage.Breaker) {
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
				f.does([]func(context.Context) error{up, down, hang}[r.IntN(3)])
				time.Sleep(50 * time.Millisecond)
			}
			callers.Wait()
			cancel()
			f.does(up)
			for began := time.Now(); try(k) != nil; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(began), 2*time.Second)
			}
		}
	})
}

// The one is the context that lets the decision end an Enter under way.
func TestHealthyPathAllocatesOnce(t *testing.T) {
	k := newBreaker(t, newFake(up, up), silent)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = try(k) }), 1.0)
}

// A question for more fences is ended by the decision as well, and not asked while the backend is away.
func TestOtherQuestionsEndToo(t *testing.T) {
	judged(t, "", newFake(up, hang), long, func(t *testing.T, k *outage.Breaker) {
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
		k := newBreaker(b, newFake(up, up), silent)
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
	var first <-chan struct{}
	f := newFake(func(ctx context.Context) error { first = ctx.Done(); return nil }, up)
	judged(t, "", f, long, func(t *testing.T, k *outage.Breaker) {
		flight := &outage.Flight{Context: t.Context()}
		_, _, err := k.Enter(flight, distributed.Request{})
		require.NoError(t, err)
		<-first // Enter has returned
		require.NoError(t, flight.Err())
		require.Equal(t, t.Context().Done(), flight.Done())

		f.does(hang)
		_, _, err = k.Enter(flight, distributed.Request{})
		refused := (*outage.Refused)(nil)
		require.ErrorAs(t, err, &refused)
		require.NoError(t, flight.Err())
	})
}
