package wllock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// lostAfter asserts that err is a loss during the function's run.
func lostAfter(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, wllock.ErrLeaseLost)
	var e *wllock.Error
	require.ErrorAs(t, err, &e)
	require.True(t, e.Ran)
	require.Equal(t, wllock.TierDistributed, e.Tier)
}

func TestLostLeaseEndsTheContextWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		l, b := newLocker(t, wllock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		own := errors.New("own")
		var at *wllock.Held
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			at, _ = wllock.HeldFrom(ctx)
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			time.Sleep(ttl)
			b.Expire("test:n:k")
			begin := time.Now()
			<-child.Done()
			require.LessOrEqual(t, time.Since(begin), ttl/3+100*time.Millisecond)
			for _, c := range []context.Context{ctx, child} {
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(c), wllock.ErrLeaseLost)
			}
			require.ErrorIs(t, at.Err(), wllock.ErrLeaseLost)
			return own
		})
		lostAfter(t, err)
		require.ErrorIs(t, err, own, "joined with the function's own error")
		synctest.Wait() // for the log
		require.EqualValues(t, 1, l.Stats().Total.Lost)
		require.Zero(t, l.Stats().Total.Held)
		require.Contains(t, logged.String(), "lost")
	})
}

// Keys may hold personal data: who wants them in the log asks for the debug level.
func TestKeysAreLoggedFromDebugOn(t *testing.T) {
	for level, named := range map[slog.Level]bool{slog.LevelWarn: false, slog.LevelInfo: false, slog.LevelDebug: true} {
		t.Run(level.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged strings.Builder
				l, b := newLocker(t, wllock.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: level}))))
				lostAfter(t, l.Do(t.Context(), "n", "marker:"+strings.Repeat("x", 100), func(ctx context.Context) error {
					b.Expire("test:n:marker:" + strings.Repeat("x", 100))
					<-ctx.Done()
					return nil
				}))
				require.NoError(t, l.Do(t.Context(), "n", "marker:1", func(ctx context.Context) error {
					<-ctx.Done()
					b.Partition(true)
					return nil
				}, wllock.WithLockTimeMax(time.Millisecond), wllock.SyncRelease()))
				b.Partition(false)
				synctest.Wait()
				require.Contains(t, logged.String(), "system=test name=n")
				for _, what := range []string{"lost while held", "held for longer", "not released"} {
					require.Contains(t, logged.String(), what)
				}
				require.Equal(t, named, strings.Contains(logged.String(), "marker"), logged.String())
				require.NotContains(t, logged.String(), strings.Repeat("x", 64), "cut")
			})
		})
	}
}

func TestHeldErrKnowsByTheClockBeforeAnyTimer(t *testing.T) {
	l, b := newLocker(t, wllock.WithLeaseTTL(60*time.Millisecond))
	err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		h, _ := wllock.HeldFrom(ctx)
		b.Partition(true) // no renewal gets through
		require.NoError(t, h.Err())
		for time.Now().Before(h.Until()) {
			time.Sleep(time.Millisecond)
		}
		require.ErrorIs(t, h.Err(), wllock.ErrLeaseLost)
		return nil
	})
	b.Partition(false)
	lostAfter(t, err)
}

func TestFunctionThatIgnoresItsLostContextBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		stay, first := make(chan struct{}), make(chan error)
		go func() {
			first <- l.Do(context.Background(), "n", "k", func(context.Context) error { <-stay; return nil },
				wllock.WithLockTimeMax(0))
		}()
		synctest.Wait()
		b.Expire("test:n:k")
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			close(stay)
			lostAfter(t, <-first)
			// its late return has freed nobody else's turn
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			return nil
		}))
	})
}

func TestNoLocalCallerBeforeTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		stay, first := make(chan struct{}), make(chan error)
		var until time.Time
		go func() {
			first <- l.Do(context.Background(), "n", "k", func(ctx context.Context) error {
				h, _ := wllock.HeldFrom(ctx)
				b.Partition(true)
				until = h.Until()
				<-stay
				return nil
			})
		}()
		synctest.Wait()
		time.AfterFunc(2*ttl, func() { b.Partition(false) })
		for {
			err := l.Do(t.Context(), "n", "k", nothing)
			if err == nil {
				break
			}
			require.ErrorIs(t, err, wllock.ErrUnavailable)
			require.False(t, time.Now().Before(until))
			time.Sleep(ttl / 10)
		}
		close(stay)
		lostAfter(t, <-first)
	})
}

func TestLockTimeMaxEndsTheContextButNotTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			begin := time.Now()
			<-ctx.Done()
			require.Equal(t, 2*ttl, time.Since(begin))
			require.ErrorIs(t, context.Cause(ctx), wllock.ErrLockTimeMax)
			require.NotErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
			require.ErrorIs(t, h.Err(), wllock.ErrLockTimeMax)
			return nil
		}, wllock.WithLockTimeMax(2*ttl))
		require.NoError(t, err, "the lease held to the end")
		require.EqualValues(t, 1, l.Stats().Total.Overstays)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
	})
}

func TestOverstayingUntilTheLeaseIsOverIsBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		stay, first := make(chan struct{}), make(chan error)
		go func() {
			first <- l.Do(context.Background(), "n", "k", func(context.Context) error { <-stay; return nil },
				wllock.WithLockTimeMax(2*ttl))
		}()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.InDelta(t, 3*ttl, time.Since(begin), float64(ttl/2), "the lease was not renewed any more")
		close(stay)
		err := <-first
		lostAfter(t, err)
		require.ErrorIs(t, err, wllock.ErrLockTimeMax)
	})
}

func TestOverstayingReaderDoesNotEndItsFellow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		done := make(chan error)
		go func() {
			done <- l.Do(context.Background(), "n", "k", func(ctx context.Context) error {
				time.Sleep(5 * ttl)
				return ctx.Err()
			}, wllock.Shared(), wllock.WithLockTimeMax(ttl))
		}()
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			time.Sleep(4 * ttl)
			h, _ := wllock.HeldFrom(ctx)
			return h.Err()
		}, wllock.Shared()))
		lostAfter(t, <-done) // after its fellow had left, the lease ran out
	})
}

// A loss that only the backend knows, for it has had no occasion to tell, comes out when the lock is given back.
func TestReleaseTellsOfALossEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		k, err := l.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		b.Expire("test:n:k")
		first := k.Release(t.Context())
		again := k.Release(t.Context())
		require.ErrorIs(t, first, wllock.ErrLeaseLost)
		require.ErrorIs(t, again, wllock.ErrLeaseLost)
		require.EqualValues(t, 1, l.Stats().Total.Lost)
	})
}

func TestSyncReleaseTellsOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(context.Context) error {
			b.Expire("test:n:k")
			return nil
		}, wllock.SyncRelease())
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
	})
}

// slowLog is a log that stands still for a while: a full pipe, a hanging collector.
type slowLog struct {
	slog.Handler
	pause time.Duration
}

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (s slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(s.pause)
	return nil
}

// TestSlowLogOfALossHarmsNobody: neither the next in the line nor the leases that are renewed together with the lost one.
func TestSlowLogOfALossHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, err := wllock.New("test", b, wllock.WithLeaseTTL(ttl), wllock.WithLogger(slog.New(slowLog{slog.DiscardHandler, 5 * ttl})))
		require.NoError(t, err)
		const n = 6
		var locks []*wllock.Lock
		for i := range n {
			k, err := l.Acquire(t.Context(), "n", string(rune('a'+i)))
			require.NoError(t, err)
			locks = append(locks, k)
		}
		next := make(chan time.Duration, 1)
		begin := time.Now()
		go func() {
			_ = l.Do(context.Background(), "n", "a", nothing)
			next <- time.Since(begin)
		}()
		synctest.Wait()
		for i := 0; i < n; i += 2 { // several, for those that are renewed before a lost one suffer nothing
			b.Expire("test:n:" + string(rune('a'+i)))
		}
		time.Sleep(3 * ttl)
		lost := 0
		for i := 1; i < n; i += 2 {
			if locks[i].Err() != nil {
				lost++
			}
		}
		for _, k := range locks {
			_ = k.Release(t.Context())
		}
		waited := <-next
		_ = l.Close(t.Context())
		_ = b.Close()
		if lost > 0 {
			t.Errorf("%d leases of others were lost", lost)
		}
		require.LessOrEqual(t, waited, 2*ttl)
	})
}
