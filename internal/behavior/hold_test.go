package behavior

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestHeldReportsWaitsAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		first, err := other.Acquire(t.Context(), "n", "k")
		require.NoError(t, err)
		time.AfterFunc(200*time.Millisecond, func() { _ = first.Release(context.Background()) })
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, ok := wllock.HeldFrom(ctx)
			require.True(t, ok)
			require.Greater(t, h.Fence(), first.Fence())
			require.Zero(t, h.LocalWait())
			require.Equal(t, 200*time.Millisecond, h.DistributedWait())
			require.False(t, h.Handoff())
			require.False(t, h.Degraded())
			require.Positive(t, time.Until(h.Until()))
			require.NoError(t, h.Err())
			return nil
		}))
	})
}

func TestUntilMovesWithEveryRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			before := h.Until()
			time.Sleep(5 * ttl)
			require.Greater(t, h.Until().Sub(before), 4*ttl)
			return h.Err()
		}))
	})
}

func TestHeldErrLooksAtTheClockBeforeAnyTimer(t *testing.T) {
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
			// its late return has not freed another caller's turn
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
			return nil
		}))
	})
}

func TestNoLocalCallerBeforeTheLeaseHasExpired(t *testing.T) {
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

func TestOverstayingUntilTheLeaseExpiresIsBoth(t *testing.T) {
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
		require.InDelta(t, 3*ttl, time.Since(begin), float64(ttl/2), "the lease was no longer renewed")
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
		lostAfter(t, <-done) // after the other reader had left, the lease expired
	})
}

// A loss that only the backend knows is reported when the lock is released.
func TestReleaseReportsALossEachTime(t *testing.T) {
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

func TestSyncReleaseReportsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(context.Context) error {
			b.Expire("test:n:k")
			return nil
		}, wllock.SyncRelease())
		require.ErrorIs(t, err, wllock.ErrLeaseLost)
	})
}

// TestErrLockTimeMaxIsNotLost: a function that stops with its context says so in the context's words, as database/sql does.
func TestErrLockTimeMaxIsNotLost(t *testing.T) {
	own := errors.New("own")
	const max = `wllock: hold "test:n:k": lock held for longer than its maximum`
	for what, c := range map[string]struct {
		fn     func(ctx context.Context) error
		text   string // of the error; empty: it is the function's
		always error
	}{
		"error of the context": {func(ctx context.Context) error { return ctx.Err() }, max + "; context canceled", context.Canceled},
		"wrapped":              {func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, max + "; query: context canceled", context.Canceled},
		"cause":                {context.Cause, max, nil},
		"wrapped cause": {func(ctx context.Context) error { return fmt.Errorf("query: %w", context.Cause(ctx)) },
			`wllock: hold "test:n:k": query: lock held for longer than its maximum`, nil},
		"own": {func(context.Context) error { return own }, "", own},
		"nil": {func(context.Context) error { return nil }, "", nil},
	} {
		for depth := range 3 {
			t.Run(fmt.Sprint(what, " ", depth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, _ := newLocker(t)
					fn := func(ctx context.Context) error { <-ctx.Done(); return c.fn(ctx) }
					for range depth { // nested guards
						fn = l.Guard("n", "k", fn, wllock.WithLockTimeMax(ttl))
					}
					err := l.Do(t.Context(), "n", "k", fn, wllock.WithLockTimeMax(ttl))
					if c.text == "" {
						require.Equal(t, c.always, err)
						return
					}
					require.EqualError(t, err, c.text)
					require.ErrorIs(t, err, wllock.ErrLockTimeMax)
					require.NotErrorIs(t, err, wllock.ErrLeaseLost)
					if c.always != nil {
						require.ErrorIs(t, err, c.always)
					}
					var e *wllock.Error
					require.ErrorAs(t, err, &e)
					require.True(t, e.Ran)
				})
			})
		}
	}
}

// The caller's own end is no overstay, whatever comes later.
func TestCallerThatLeftHasNotOverstayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
		defer cancel()
		err := l.Do(ctx, "n", "k", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(ttl)
			return ctx.Err()
		}, wllock.WithLockTimeMax(ttl))
		require.Equal(t, context.DeadlineExceeded, err)
	})
}

// TestLossIsSaidOnce: also if the function returns the cause of its context, and through nested guards.
func TestLossIsSaidOnce(t *testing.T) {
	for depth := range 3 {
		synctest.Test(t, func(t *testing.T) {
			l, b := newLocker(t)
			fn := func(ctx context.Context) error {
				b.Expire("test:n:k")
				<-ctx.Done()
				return context.Cause(ctx)
			}
			for range depth {
				fn = l.Guard("n", "k", fn)
			}
			err := l.Do(t.Context(), "n", "k", fn)
			lostAfter(t, err)
			require.EqualError(t, err, `wllock: hold "test:n:k": lease lost`)
		})
	}
}

// The lease of a function that has overstayed is lost later, and both are said once.
func TestOverstayAndLossAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * ttl)
			return context.Cause(ctx)
		}, wllock.WithLockTimeMax(ttl))
		lostAfter(t, err)
		require.EqualError(t, err, `wllock: hold "test:n:k": lease lost`+"; lock held for longer than its maximum")
	})
}

// TestTwoLostLocksAreBothNamed: the error of the inner lock says nothing of the outer one.
func TestTwoLostLocksAreBothNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "outer", l.Guard("n", "inner", func(ctx context.Context) error {
			b.Expire("test:n:outer")
			b.Expire("test:n:inner")
			<-ctx.Done()
			time.Sleep(ttl)
			return nil
		}))
		lostAfter(t, err)
		require.EqualError(t, err, `wllock: hold "test:n:outer": lease lost`+"; "+`wllock: hold "test:n:inner": lease lost`)
	})
}

// TestRefusalOfANestedGuardDoesNotHideTheLoss: it has not run, but the function around it has.
func TestRefusalOfANestedGuardDoesNotHideTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			b.Expire("test:n:k")
			<-ctx.Done()
			return l.Do(ctx, "n", "k", never(t))
		})
		lostAfter(t, err)
		require.ErrorContains(t, err, `hold "test:n:k": lease lost`)
	})
}
