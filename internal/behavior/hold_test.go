package behavior

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestHeld(t *testing.T) {
	pair(t, "it reports waits and fences", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
		first := acquire(t, other, "k")
		time.AfterFunc(200*time.Millisecond, func() { _ = first.Release(context.Background()) })
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, ok := wllock.HeldFrom(ctx)
			require.True(t, ok)
			require.Greater(t, h.Fence(), first.Fence())
			require.Zero(t, h.LocalWait())
			require.Equal(t, 200*time.Millisecond, h.DistributedWait())
			require.False(t, h.Handoff())
			require.False(t, h.Degraded())
			before := h.Until()
			require.Positive(t, time.Until(before))
			time.Sleep(5 * ttl)
			require.Greater(t, h.Until().Sub(before), 4*ttl, "it moves with every renewal")
			return h.Err()
		}))
	})

	bubble(t, "Err looks at the clock before any timer", func(t *testing.T) {
		b := memlock.New()
		err := lockerOn(t, deaf(b)).Do(t.Context(), "n", "k", func(ctx context.Context) error {
			h, _ := wllock.HeldFrom(ctx)
			b.Partition(true) // no renewal gets through
			require.NoError(t, h.Err())
			time.Sleep(time.Until(h.Until()))
			require.NoError(t, ctx.Err(), "nothing has noticed")
			require.ErrorIs(t, h.Err(), wllock.ErrLeaseLost)
			return nil
		})
		b.Partition(false)
		lostAfter(t, err)
	})
}

func TestLoss(t *testing.T) {
	bubble(t, "it ends the context with its cause", func(t *testing.T) {
		var logged strings.Builder
		l, b := newLocker(t, logTo(&logged))
		own := errors.New("own")
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			stopped := context.AfterFunc(ctx, func() { t.Error("was stopped") })
			require.True(t, stopped())
			time.Sleep(ttl)
			require.LessOrEqual(t, elapsed(func() { loses(child, b, "k") }), ttl/3+100*time.Millisecond)
			late, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-late.Done()
			for _, c := range []context.Context{ctx, child, late} {
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(c), wllock.ErrLeaseLost)
			}
			require.ErrorIs(t, heldIn(ctx).Err(), wllock.ErrLeaseLost)
			return own
		})
		lostAfter(t, err)
		require.ErrorIs(t, err, own, "joined with the function's own error")
		synctest.Wait() // for the log
		require.EqualValues(t, 1, l.Stats().Total.Lost)
		require.Zero(t, l.Stats().Total.Held)
		require.Contains(t, logged.String(), "lost")
	})

	// Whoever asks why the lock was lost is told of the renewals that failed: its error, the cause of its context, the log and the Stats.
	bubble(t, "it says why the lease was not renewed", func(t *testing.T) {
		var logged strings.Builder
		l, b := newLocker(t, logTo(&logged), wllock.WithKeyRedaction(func(string) string { return "secret" }))
		var cause error
		err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			time.Sleep(ttl)
			b.Partition(true)
			<-ctx.Done()
			cause = context.Cause(ctx)
			why, known := errors.AsType[*distributed.LostError](heldIn(ctx).Err())
			require.True(t, known)
			require.WithinDuration(t, time.Now(), why.At, ttl/20, "tries go on to the end")
			return cause
		})
		b.Partition(false)
		lostAfter(t, err)
		require.NotErrorIs(t, err, wllock.ErrUnavailable, "the function has run")
		require.Equal(t, 1, strings.Count(err.Error(), "lease lost"), "it is said once: %v", err)
		synctest.Wait() // for the log
		last := l.Stats().LastLost
		require.Equal(t, "test:n:secret", last.Key)
		for _, e := range []error{err, cause, last.Err} {
			require.Regexp(t, `lease lost: its last renewal, at [0-9:.]+Z, failed: partitioned: `, e.Error())
		}
		require.Regexp(t, `lock lost while held.* renewal_error="partitioned: .*" renewal_failed_at=2000-01-01T`, logged.String())
	})

	scene(t, "a function that ignores it blocks nobody", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		stay := make(chan struct{})
		first := started(l, keys("k"), func(context.Context) error { <-stay; return nil }, forever)
		b.Expire("test:n:k")
		inside(t, l, keys("k"), func(context.Context) {
			close(stay)
			lostAfter(t, <-first)
			// its late return has not freed another caller's turn
			require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		})
	})

	scene(t, "no local caller is inside before the lease has expired", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		stay := make(chan struct{})
		var until time.Time
		first := started(l, keys("k"), func(ctx context.Context) error {
			b.Partition(true)
			until = heldIn(ctx).Until()
			<-stay
			return nil
		})
		time.AfterFunc(2*ttl, func() { b.Partition(false) })
		for err := l.Do(t.Context(), "n", "k", nothing); err != nil; err = l.Do(t.Context(), "n", "k", nothing) {
			require.ErrorIs(t, err, wllock.ErrUnavailable)
			require.False(t, time.Now().Before(until))
			time.Sleep(ttl / 10)
		}
		close(stay)
		lostAfter(t, <-first)
	})

	// The error of the inner lock says nothing of the outer one.
	scene(t, "two lost locks are both named", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		err := l.Do(t.Context(), "n", "outer", l.Guard("n", "inner", func(ctx context.Context) error {
			b.Expire("test:n:outer")
			loses(ctx, b, "inner")
			time.Sleep(ttl)
			return nil
		}))
		lostAfter(t, err)
		require.EqualError(t, err, `wllock: hold "test:n:outer": lease lost`+"; "+`wllock: hold "test:n:inner": lease lost`)
	})

	// Also if the function returns the cause of its context, and through nested guards.
	for depth := range 3 {
		scene(t, fmt.Sprint("it is said once, through nested guards: ", depth), func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			fn := func(ctx context.Context) error {
				loses(ctx, b, "k")
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

func TestOverstays(t *testing.T) {
	// The lease is not renewed, and so is lost. Both are said once.
	for _, all := range [][]wllock.Resource{keys("k"), keys("k", "l")} {
		scene(t, fmt.Sprint("until the lease expires, keys: ", len(all)), func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
			stay := make(chan struct{})
			first := started(l, all, func(ctx context.Context) error { <-stay; return context.Cause(ctx) }, wllock.WithLockTimeMax(2*ttl))
			require.InDelta(t, 3*ttl, elapsed(func() { require.NoError(t, do(t.Context(), l, all, nothing)) }), float64(ttl/2))
			close(stay)
			err := <-first
			lostAfter(t, err)
			require.ErrorIs(t, err, wllock.ErrLockTimeMax)
			require.EqualError(t, err, `wllock: hold "test:n:k": lease lost`+"; lock held for longer than its maximum")
		})
	}

	scene(t, "an overstaying reader does not end its fellow", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		done := started(l, keys("k"), func(ctx context.Context) error {
			time.Sleep(5 * ttl)
			return ctx.Err()
		}, wllock.Shared(), wllock.WithLockTimeMax(ttl))
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			time.Sleep(4 * ttl)
			return heldIn(ctx).Err()
		}, wllock.Shared()))
		lostAfter(t, <-done) // after the other reader had left, the lease expired
	})

	// The caller's own end is no overstay, whatever comes later.
	scene(t, "a caller that left has not overstayed", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		err := l.Do(within(t, ttl/2), "n", "k", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(ttl)
			return ctx.Err()
		}, wllock.WithLockTimeMax(ttl))
		require.Equal(t, context.DeadlineExceeded, err)
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
		"error of the context": {context.Context.Err, max + "; context canceled", context.Canceled},
		"wrapped": {func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
			max + "; query: context canceled", context.Canceled},
		"cause": {context.Cause, max, nil},
		"wrapped cause": {func(ctx context.Context) error { return fmt.Errorf("query: %w", context.Cause(ctx)) },
			`wllock: hold "test:n:k": query: lock held for longer than its maximum`, nil},
		"own": {func(context.Context) error { return own }, "", own},
		"nil": {func(context.Context) error { return nil }, "", nil},
	} {
		for depth := range 3 {
			scene(t, fmt.Sprint(what, " ", depth), func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
				fn := func(ctx context.Context) error {
					require.Equal(t, ttl, elapsed(func() { <-ctx.Done() }))
					require.Equal(t, wllock.ErrLockTimeMax, context.Cause(ctx))
					require.ErrorIs(t, heldIn(ctx).Err(), wllock.ErrLockTimeMax)
					return c.fn(ctx)
				}
				for range depth { // nested guards
					fn = l.Guard("n", "k", fn, wllock.WithLockTimeMax(ttl))
				}
				err := l.Do(t.Context(), "n", "k", fn, wllock.WithLockTimeMax(ttl))
				require.EqualValues(t, 1, l.Stats().Total.Overstays)
				require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
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
				require.True(t, asError(t, err).Ran)
				require.True(t, map[error]bool{err: true}[err], "errors of several causes can be compared: one that was a slice panicked")
			})
		}
	}
}

// TestContextOfAHoldFollowsTheCallersWhereverItIsPassed: also after the function has returned, and through a value
// context, which package context follows by the channel alone.
func TestContextOfAHoldFollowsTheCallersWhereverItIsPassed(t *testing.T) {
	for name, derive := range map[string]func(context.Context) context.Context{
		"direct": func(ctx context.Context) context.Context { return ctx },
		"value":  func(ctx context.Context) context.Context { return context.WithValue(ctx, valueKey{}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLocker(t)
			ctx, cancel := context.WithCancel(t.Context())
			var started, itself context.Context
			require.NoError(t, l.Do(ctx, "n", "k", func(ctx context.Context) error {
				itself = ctx
				var stop context.CancelFunc
				started, stop = context.WithCancel(derive(ctx))
				t.Cleanup(stop)
				return nil
			}))
			done := itself.Done()
			runtime.GC()
			cancel()
			for _, c := range []<-chan struct{}{started.Done(), done, itself.Done()} {
				select {
				case <-c:
				case <-time.After(5 * time.Second):
					t.Fatal("the caller's context has ended, and this one has not")
				}
			}
		})
	}
}

func TestEndOfTheCallersContext(t *testing.T) {
	// Once, a channel made after the caller's end was closed a moment later, and each poll made another one.
	for _, asked := range []bool{false, true} {
		scene(t, fmt.Sprint("polling Done sees it, asked before: ", asked), func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, do(ctx, l, keys("a"), l.Guard("n", "b", func(ctx context.Context) error {
				if asked {
					_ = ctx.Done()
				}
				cancel()
				require.ErrorIs(t, ctx.Err(), context.Canceled)
				select {
				case <-ctx.Done():
				default:
					t.Error("a poll does not see it")
				}
				return nil
			})))
		})
	}

	scene(t, "the hold's context ends with it, and has its values and deadline", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		why := errors.New("client went away")
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, 1))
		deadline, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		require.NoError(t, l.Do(deadline, "n", "k", func(ctx context.Context) error {
			require.Equal(t, 1, ctx.Value(valueKey{}))
			at, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, time.Hour, time.Until(at))
			derived, stop := context.WithCancel(ctx)
			defer stop()
			after := make(chan struct{})
			context.AfterFunc(ctx, func() { close(after) })
			done := ctx.Done()
			cancel(why)
			<-done
			<-after
			<-derived.Done()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), why)
			require.ErrorIs(t, context.Cause(derived), why)
			return nil
		}))
	})
}
