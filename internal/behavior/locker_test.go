package behavior

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/wllocktest"
)

func TestCloseSendsWaitersAwayAndLetsHoldersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		release := hold(t, other, "n", "far")
		held := started(l, keys("near"), func(ctx context.Context) error {
			time.Sleep(3 * ttl)
			return ctx.Err()
		})
		var waiting []<-chan error
		for _, key := range []string{"near", "far", "far"} { // in the local queue; at the backend; behind that one
			waiting = append(waiting, started(l, keys(key), never(t)))
		}
		require.Equal(t, 3*ttl, elapsed(func() { require.NoError(t, l.Close(t.Context())) }))
		require.NoError(t, <-held)
		for _, refused := range waiting {
			require.ErrorIs(t, <-refused, wllock.ErrClosed)
		}
		release() // the closed Locker has nothing left in the backend's queue
		require.NoError(t, other.Do(t.Context(), "n", "far", nothing, wllock.NoWait()))
		require.NoError(t, other.Do(t.Context(), "n", "near", nothing, wllock.NoWait()))
		require.NoError(t, l.Close(t.Context()), "again")
		refusal(t, l.Do(t.Context(), "n", "near", never(t)), wllock.ErrClosed, wllock.TierLocal)
	})
}

func TestClose(t *testing.T) {
	scene(t, "it abandons the lease of a holder that stays", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		stay := make(chan struct{})
		held := started(l, keys("k"), func(context.Context) error { <-stay; return nil })
		require.ErrorIs(t, l.Close(ended(t)), context.Canceled)
		require.LessOrEqual(t, freeAfter(t, lockerOn(t, b)), ttl)
		close(stay)
		lostAfter(t, <-held)
	})

	scene(t, "it releases lingering leases", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.NoError(t, l.Close(t.Context()))
		require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	}, wllock.WithLinger(time.Hour))

	bubble(t, "it closes only an owned backend", func(t *testing.T) {
		b := memlock.New()
		l, err := wllock.New("test", b)
		require.NoError(t, err)
		require.NoError(t, l.Close(t.Context()))
		require.NoError(t, b.Ping(t.Context()))
		l, err = wllock.New("test", b, wllock.WithOwnedBackend())
		require.NoError(t, err)
		require.NoError(t, l.Close(t.Context()))
		require.Error(t, b.Ping(t.Context()))
	})

	bubble(t, "with nothing held it succeeds whatever its context", func(t *testing.T) { // where a busy machine makes no answer late
		for range 100 {
			l, err := wllock.New("test", memlock.New())
			require.NoError(t, err)
			require.NoError(t, l.Close(ended(t)))
		}
	})

	// Close keeps to its context also while the backend does not: that goes on closing by itself.
	bubble(t, "it does not wait for a silent backend", func(t *testing.T) {
		memory := memlock.New()
		l, err := wllock.New("test", stuck{memory}, wllock.WithOwnedBackend())
		require.NoError(t, err)
		began := time.Now()
		err = l.Close(within(t, 150*time.Millisecond))
		require.Equal(t, 400*time.Millisecond, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the backend is still closing")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, memory.Ping(t.Context()), distributed.ErrClosed)
	})
}

// stuck is a backend that is silent, and closes after a while.
type stuck struct{ distributed.Backend }

func (stuck) Ping(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

func (s stuck) Close() error {
	time.Sleep(4 * time.Second)
	return s.Backend.Close()
}

func TestNoWaitAndLingeringLeases(t *testing.T) {
	// A holder whose lease lingers gives it back when another instance is refused, and the next try has it.
	bubble(t, "a caller is refused once", func(t *testing.T) {
		var enters atomic.Int32
		b := counted(memlock.New(), &enters)
		a, other := lockerOn(t, b, wllock.WithLinger(10*time.Second)), lockerOn(t, b)
		for range 3 {
			require.NoError(t, a.Do(t.Context(), "n", "k", nothing))
			before := enters.Load()
			require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
			require.EqualValues(t, 1, enters.Load()-before, "who is refused asks once")
			synctest.Wait()
			require.Empty(t, a.Locks(1), "the lease is given back at once")
			require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
			synctest.Wait()
			time.Sleep(11 * time.Minute) // then the key lingers again
		}
	})

	bubble(t, "so it is with permits", func(t *testing.T) {
		b := memlock.New()
		a, other := lockerOn(t, b, wllock.WithLinger(10*time.Second)), lockerOn(t, b)
		permits := wllock.Permits(4)
		leaves(several(t, 4, a, permits)...)
		require.True(t, a.Locks(1)[0].Lingering)
		require.Equal(t, "held", comes(t, other, permits, wllock.NoWait()).state())
		leaves(several(t, 4, other, permits, wllock.NoWait())...)
		synctest.Wait()
		nothingLeft(t, b, a, other)
	})

	// Those that are refused while the lock is used do not shorten the tenure: callers in line are served, however many others were
	// refused. Only the lease does not linger when all have been.
	bubble(t, "it breaks into no tenure", func(t *testing.T) {
		var enters atomic.Int32
		b := counted(memlock.New(), &enters)
		a := lockerOn(t, b, wllock.WithLinger(10*time.Second), wllock.WithMaxHandoffs(1), wllock.WithMaxTenure(time.Millisecond),
			wllock.WithLeaseTTL(time.Minute))
		other := lockerOn(t, b)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				_ = a.Do(t.Context(), "n", "k", func(context.Context) error {
					for range 20 {
						time.Sleep(time.Millisecond)
						require.ErrorIs(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), wllock.ErrHeld)
					}
					return nil
				})
			})
		}
		calls.Wait()
		synctest.Wait()
		require.EqualValues(t, 1+50*20, enters.Load(), "one lease served all, and each that was refused has asked once")
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

// untold is b when it does not tell holders of those that were refused, as most.
func untold(b distributed.Backend) distributed.Backend {
	b = leasing{b, func(l distributed.Lease) distributed.Lease { return unwanted{l} }}
	return entering{b, func(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
		l, p, err := b.Enter(ctx, r)
		if h, ok := errors.AsType[*distributed.HeldError](err); ok {
			err = distributed.Held(h.Holder)
		}
		return l, p, err
	}}
}

type unwanted struct{ distributed.Lease }

func (l unwanted) Unwrap() distributed.Lease { return l.Lease }
func (unwanted) Wanted() bool                { return false }

// A caller that does not wait gets what another instance keeps for its own callers, after one refusal, or where only a place tells the
// holder after T/2: however often that one uses the lock, and however seldom this one tries.
func TestNoWaitGetsWhatLingers(t *testing.T) {
	for _, rhythm := range []struct{ use, linger, try time.Duration }{
		{200 * time.Millisecond, 300 * time.Millisecond, 110 * time.Millisecond},
		{200 * time.Millisecond, 300 * time.Millisecond, 510 * time.Millisecond},
		{time.Second, 2 * time.Second, 5 * time.Second / 6},
		{8 * time.Second, 10 * time.Second, 1100 * time.Millisecond},
		{8 * time.Second, 10 * time.Second, 61 * time.Second},
	} {
		for name, told := range map[string]bool{"told": true, "untold": false} {
			bubble(t, fmt.Sprintf("%v, %s", rhythm, name), func(t *testing.T) {
				var b distributed.Backend = memlock.New()
				if !told {
					b = untold(b)
				}
				const keys = 40
				a, other := lockerOn(t, b, wllock.WithLinger(rhythm.linger)), lockerOn(t, b, wllock.WithLinger(rhythm.linger))
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var busy sync.WaitGroup
				for i := range keys {
					busy.Go(func() {
						for ; ctx.Err() == nil; time.Sleep(rhythm.use) {
							assert.NoError(t, a.Do(t.Context(), "n", strconv.Itoa(i), nothing))
						}
					})
				}
				time.Sleep(rhythm.use / 3)
				for i := range keys {
					busy.Go(func() {
						refused, since := 0, time.Now()
						for try := range min(30, int(10*time.Minute/rhythm.try)) {
							switch err := other.Do(t.Context(), "n", strconv.Itoa(i), nothing, wllock.NoWait()); {
							case err == nil:
							case told:
								refused++
								assert.LessOrEqual(t, refused, 1, "try %d", try)
							default:
								assert.True(t, try == 0 || time.Since(since) <= 5*time.Second/2, "try %d", try)
							}
							time.Sleep(rhythm.try)
						}
						stop()
					})
				}
				busy.Wait()
			})
		}
	}
}

// probed is a backend on which no lock of one system would work, though all is well otherwise.
type probed struct {
	distributed.Backend
	asked distributed.Probe
}

var errNoRights = errors.New("no rights")

func (p *probed) Probe(_ context.Context, asked distributed.Probe) error {
	p.asked = asked
	return errNoRights
}

func TestAskingTheBackend(t *testing.T) {
	// Ping answers whether a lock would work: of this Locker's system, with its TTL.
	bubble(t, "Ping asks whether a lock would work", func(t *testing.T) {
		b := &probed{Backend: memlock.New()}
		require.NoError(t, b.Ping(t.Context()))
		l := lockerOn(t, b, wllock.WithLeaseTTL(7*time.Second))
		err := l.Ping(t.Context())
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorIs(t, err, errNoRights)
		require.Equal(t, distributed.Probe{Key: "test:ping:ping", TTL: 7 * time.Second}, b.asked)
		other, _ := newLocker(t)
		require.NoError(t, other.Ping(t.Context()), "a backend that is no Prober is pinged")
	})

	scene(t, "Health follows the backend", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		require.True(t, l.Health().Available)
		time.Sleep(time.Minute)
		b.Partition(true)
		began := time.Now()
		for range 3 {
			e := refusal(t, l.Do(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable, wllock.TierDistributed)
			require.Positive(t, e.RetryAfter)
		}
		require.EqualValues(t, 3, l.Stats().Total.Unavailable)
		require.ErrorIs(t, l.Ping(t.Context()), wllock.ErrUnavailable)
		h := l.Health()
		require.False(t, h.Available)
		require.ErrorIs(t, h.Err, wllock.ErrUnavailable)
		require.WithinDuration(t, began, h.Since, 0)
		require.Equal(t, h, l.Stats().Backend)
		b.Partition(false)
		time.Sleep(3 * time.Second)
		require.True(t, l.Health().Available, "asked for by nobody")
		require.NoError(t, l.Health().Err)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
	})
}

// memory is what a process keeps: goroutines, and objects.
func memory() (goroutines int, objects uint64) {
	synctest.Wait()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapObjects
}

// The backend is silent while calls of all kinds come: neither goroutines nor objects grow with the time, and nothing is left when it
// answers again.
func TestALongSilenceCostsNoMemory(t *testing.T) {
	silence := testscope.Scale(5*time.Minute, time.Hour)
	for name, policy := range map[string]wllock.Outage{"closed": wllock.FailClosed, "local": wllock.LocalOnly} {
		bubble(t, name, func(t *testing.T) {
			opts := []wllock.Option{wllock.WithLeaseTTL(5 * time.Second), wllock.WithLinger(time.Second), wllock.WithOutage(policy)}
			l, faults := wllocktest.NewWithFaults(t, opts...)
			other := faults.Process(opts...)
			stop := underLoad(t.Context(), l, other)
			defer stop()
			stays := func(goroutines int, objects uint64) {
				t.Helper()
				g, o := memory()
				require.LessOrEqual(t, g, goroutines+64, "the runtime counts up to 33 too many while it puts ended ones aside")
				require.LessOrEqual(t, o, objects+5000, "one for each third call")
			}
			time.Sleep(30 * time.Second)
			calm, least := memory()
			faults.Hang()
			time.Sleep(time.Minute)
			goroutines, objects := memory()
			for range 4 {
				time.Sleep(silence / 4)
				stays(goroutines, objects)
			}
			faults.Heal()
			time.Sleep(30 * time.Second)
			stays(calm, least)
			stop()
			time.Sleep(time.Minute)
			require.Empty(t, l.Locks(1))
			require.Zero(t, l.Stats().Total.Held+l.Stats().Total.Waiting)
		})
	}
}

// underLoad makes calls of ten kinds until stop is called.
func underLoad(ctx context.Context, l, other *wllock.Locker) (stop func()) {
	var stopped atomic.Bool
	var all sync.WaitGroup
	batch := wllock.WrapBatch(l, "n", func(int) string { return "b" }, doubling, wllock.WithWait(2*time.Second))
	for _, call := range []func(i int){
		func(int) { _ = l.Do(ctx, "n", "a", nothing, wllock.WithWait(10*time.Second)) },
		func(int) { _ = other.Do(ctx, "n", "a", nothing, wllock.WithWait(2*time.Second)) },
		func(i int) { _ = l.Do(ctx, "n", strconv.Itoa(i), nothing, wllock.WithWait(time.Second)) },
		func(int) { _ = l.Do(ctx, "n", "p", nothing, wllock.Permits(2), wllock.NoWait()) },
		func(int) { _ = l.Do(ctx, "n", "p", nothing, wllock.Permits(2), wllock.WithWait(8*time.Second)) },
		func(int) { _ = l.Do(ctx, "n", "s", nothing, wllock.Shared(), wllock.WithWait(3*time.Second)) },
		func(int) {
			_ = l.Do(ctx, "n", "h", nothing, wllock.WithHoldAtLeast(time.Second), wllock.WithWait(3*time.Second))
		},
		func(int) { _ = l.DoAll(ctx, keys("c", "d"), nothing, wllock.WithWait(2*time.Second)) },
		func(i int) { _, _ = batch(ctx, i) },
		func(int) {
			term, cancel := context.WithTimeout(ctx, 7*time.Second)
			defer cancel()
			_ = l.Lead(term, "n", "l", func(ctx context.Context) error { <-ctx.Done(); return nil })
		},
	} {
		all.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				call(i)
				time.Sleep(97 * time.Millisecond)
			}
		})
	}
	return func() {
		stopped.Store(true)
		all.Wait()
	}
}

// watched is a context that counts its AfterFuncs.
type watched struct {
	context.Context
	watches atomic.Int32
}

// Done differs from the standard context's, so that package context uses AfterFunc.
func (w *watched) Done() <-chan struct{} { return w.Context.Done() }
func (w *watched) Value(key any) any     { return nil }

func (w *watched) AfterFunc(f func()) func() bool {
	w.watches.Add(1)
	stop := context.AfterFunc(w.Context, f)
	return func() bool { w.watches.Add(-1); return stop() }
}

func TestHoldLeavesNothingInTheCallersContext(t *testing.T) {
	l, _ := newLocker(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent := &watched{Context: ctx}
	var derived context.Context
	var stop context.CancelFunc
	require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
		require.Zero(t, parent.watches.Load(), "nobody has asked for Done")
		_ = ctx.Done()
		require.EqualValues(t, 1, parent.watches.Load())
		return nil
	}))
	unwatched := func() bool { // once the hold's memory is free
		runtime.GC()
		return parent.watches.Load() == 0
	}
	require.Eventually(t, unwatched, 5*time.Second, time.Millisecond)

	require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
		derived, stop = context.WithCancel(ctx)
		return nil
	}))
	require.EqualValues(t, 1, parent.watches.Load(), "a derived context is in use")
	require.NoError(t, derived.Err())
	stop()
	derived, stop = nil, nil
	require.Eventually(t, unwatched, 5*time.Second, time.Millisecond)
}

// A nil context is refused with the same words everywhere, and changes nothing.
func TestNilContextIsRefused(t *testing.T) {
	l, _ := newLocker(t)
	k := acquire(t, l, "k")
	var none context.Context
	_, inspected := l.Inspect(none, "n", "k")
	require.EqualError(t, inspected, `wllock: context is nil ("n:k")`)
	for name, err := range map[string]error{"Ping": l.Ping(none), "Close": l.Close(none), "Release": k.Release(none)} {
		require.EqualError(t, err, "wllock: context is nil", name)
	}
	require.NoError(t, k.Context().Err())
	require.NoError(t, k.Release(t.Context()))
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
}
