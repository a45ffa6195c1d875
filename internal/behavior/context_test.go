package behavior

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// watched is a context that counts its AfterFuncs.
type watched struct {
	context.Context
	mu      sync.Mutex
	watches int
}

func (w *watched) count(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches += n
	return w.watches
}

// Done differs from the standard context's, so that package context uses AfterFunc.
func (w *watched) Done() <-chan struct{} { return w.Context.Done() }
func (w *watched) Value(key any) any     { return nil }

func (w *watched) AfterFunc(f func()) func() bool {
	w.count(1)
	stop := context.AfterFunc(w.Context, f)
	return func() bool { w.count(-1); return stop() }
}

func TestHoldLeavesNothingInTheCallersContext(t *testing.T) {
	l, _ := newLocker(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent := &watched{Context: ctx}
	var derived context.Context
	var stop context.CancelFunc
	require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
		require.Zero(t, parent.count(0), "nobody has asked for Done")
		_ = ctx.Done()
		require.Equal(t, 1, parent.count(0))
		return nil
	}))
	unwatched := func() bool { // once the hold's memory is free
		runtime.GC()
		return parent.count(0) == 0
	}
	require.Eventually(t, unwatched, 5*time.Second, time.Millisecond)

	require.NoError(t, l.Do(parent, "n", "k", func(ctx context.Context) error {
		derived, stop = context.WithCancel(ctx)
		return nil
	}))
	require.Equal(t, 1, parent.count(0), "a derived context is in use")
	require.NoError(t, derived.Err())
	stop()
	derived, stop = nil, nil
	require.Eventually(t, unwatched, 5*time.Second, time.Millisecond)
}

// TestContextOfAHoldFollowsTheCallersWhereverItIsPassed: also after the function has returned, and through a value
// context, which package context follows by the channel alone.
func TestContextOfAHoldFollowsTheCallersWhereverItIsPassed(t *testing.T) {
	type key struct{}
	for name, derive := range map[string]func(context.Context) context.Context{
		"direct": func(ctx context.Context) context.Context { return ctx },
		"value":  func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
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

// TestPollingDoneSeesTheCallersEnd: once, a channel made after the caller's end was closed a moment later, and each poll
// made another one.
func TestPollingDoneSeesTheCallersEnd(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := newLocker(t)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, do(ctx, l, keys("a"), l.Guard("n", "b", func(ctx context.Context) error {
				if asked {
					_ = ctx.Done()
				}
				cancel()
				require.ErrorIs(t, ctx.Err(), context.Canceled)
				synctest.Wait()
				select {
				case <-ctx.Done():
				default:
					t.Error("a poll does not see it")
				}
				return nil
			})))
		})
	}
}

func TestHoldContextFollowsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		type key struct{}
		why := errors.New("client went away")
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
		deadline, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		require.NoError(t, l.Do(deadline, "n", "k", func(ctx context.Context) error {
			require.Equal(t, 1, ctx.Value(key{}))
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

type valueKey struct{}

// A goroutine for each hold whose function has asked for Done would stay until the hold is collected.
func TestContextInsideAnotherHoldsNeedsNoGoroutine(t *testing.T) {
	asksForDone := func(ctx context.Context) error { _ = ctx.Done(); return nil }
	for name, inner := range map[string]func(l *wllock.Locker, ctx context.Context) error{
		"Do, with a value between": func(l *wllock.Locker, ctx context.Context) error {
			return l.Do(context.WithValue(ctx, valueKey{}, 1), "n", "c", asksForDone)
		},
		"DoAll with a key of the outer one": func(l *wllock.Locker, ctx context.Context) error {
			return l.DoAll(ctx, keys("a", "c"), asksForDone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLocker(t)
			require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
				before := runtime.NumGoroutine()
				for range 500 {
					require.NoError(t, inner(l, ctx))
				}
				require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+100 }, time.Minute, time.Millisecond,
					"they stay; those of contexts that have ended only take a moment")
				return nil
			}))
		})
	}
}

func TestContextInsideAnotherHoldsEndsWithThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		lostAfter(t, l.DoAll(t.Context(), keys("a", "b"), func(ctx context.Context) error {
			return l.Do(context.WithValue(ctx, valueKey{}, 1), "n", "c", func(ctx context.Context) error {
				return l.DoAll(ctx, keys("b", "d"), func(ctx context.Context) error {
					_ = ctx.Done()
					b.Expire("test:n:a")
					<-ctx.Done()
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
					return nil
				})
			})
		}))
	})
}
