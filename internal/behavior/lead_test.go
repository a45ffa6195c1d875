package behavior

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestLeadReturnsWhatTheFunctionReturns(t *testing.T) { // rule N4
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		own := errors.New("own")
		for _, want := range []error{nil, own} {
			begin := time.Now()
			require.Equal(t, want, l.Lead(t.Context(), "n", "k", func(ctx context.Context) error {
				time.Sleep(time.Hour)
				require.NoError(t, ctx.Err(), "there is no maximum")
				return want
			}, wllock.WithLockTimeMax(time.Second), wllock.NoWait()))
			require.Equal(t, time.Hour, time.Since(begin))
		}
		require.Panics(t, func() { _ = l.Lead(t.Context(), "n", "k", func(context.Context) error { panic(own) }) })
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "a panic releases the lock")
	})
}

func TestLeaderWhoseLockIsLostLeadsAgain(t *testing.T) { // rule N4
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		own := errors.New("own")
		var fences []uint64
		var lost time.Time
		err := l.Lead(t.Context(), "n", "k", func(ctx context.Context) error {
			fences = append(fences, heldIn(ctx).Fence())
			if !lost.IsZero() {
				require.LessOrEqual(t, time.Since(lost), ttl/6)
			}
			if len(fences) == 4 {
				return own
			}
			time.Sleep(ttl)
			b.Expire("test:n:k")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
			lost = time.Now()
			return []error{nil, own, ctx.Err()}[len(fences)-1] // whatever it is
		})
		require.Equal(t, own, err, "of the term that was not lost")
		require.IsIncreasing(t, fences)
	})
}

func TestLeadEndsWithItsContext(t *testing.T) { // rule N4
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		release := hold(t, lockerOn(t, b), "n", "k", wllock.WithLockTimeMax(0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, l.Lead(ctx, "n", "k", never(t), wllock.WithWait(time.Second)), context.DeadlineExceeded, "waiting")
		require.Equal(t, time.Hour, time.Since(begin))
		release()

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		require.Equal(t, context.Canceled, l.Lead(ctx, "n", "k", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		require.ErrorIs(t, l.Lead(ctx, "n", "k", never(t)), context.Canceled)

		ctx, cancel = context.WithCancel(t.Context())
		err := l.Lead(ctx, "n", "k", func(ctx context.Context) error {
			b.Expire("test:n:k")
			<-ctx.Done()
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, wllock.ErrLeaseLost, "what went wrong last")
	})
}

func TestLeadWaitsForTheBackend(t *testing.T) { // rule N4
	for name, policy := range map[string]wllock.Outage{"FailClosed": wllock.FailClosed, "LocalOnly": wllock.LocalOnly} {
		bubble(t, name, func(t *testing.T) {
			var logged strings.Builder
			b := memlock.New()
			l := lockerOn(t, b, wllock.WithOutage(policy), logTo(&logged))
			b.Partition(true)
			var back time.Time
			time.AfterFunc(time.Minute, func() { back = time.Now(); b.Partition(false) })
			require.NoError(t, l.Lead(t.Context(), "n", "k", func(ctx context.Context) error {
				require.False(t, heldIn(ctx).Degraded())
				return nil
			}))
			require.False(t, back.IsZero())
			require.Less(t, time.Since(back), 2*time.Second+ttl)
			synctest.Wait()
			require.Equal(t, 1, strings.Count(logged.String(), "nobody can lead from here"))
		})
	}
}

func TestLeaderDoesNotGoOnWithoutALease(t *testing.T) { // rule N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		terms := 0
		require.NoError(t, l.Lead(t.Context(), "n", "k", func(ctx context.Context) error {
			if terms++; terms == 2 {
				return nil
			}
			b.Partition(true)
			time.AfterFunc(10*ttl, func() { b.Partition(false) })
			begin := time.Now()
			<-ctx.Done()
			require.LessOrEqual(t, time.Since(begin), ttl)
			return nil
		}))
	})
}

func TestLeadRefusesAtOnce(t *testing.T) { // rule N4
	l, b := newLocker(t, wllock.WithThreshold(0))
	require.ErrorIs(t, l.Lead(t.Context(), "n", "", never(t)), wllock.ErrInvalidKey)
	require.ErrorContains(t, l.Lead(t.Context(), "n", "k", never(t), wllock.Shared()), "Lead with Shared")
	require.ErrorContains(t, l.Lead(t.Context(), "n", "k", never(t), nil), "nil")
	require.ErrorContains(t, l.Lead(t.Context(), "n", "k", nil), "function is nil")
	require.ErrorContains(t, l.Lead(nil, "n", "k", never(t)), "context is nil") //lint:ignore SA1012 that is the test
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		require.ErrorIs(t, l.Lead(ctx, "n", "k", never(t)), wllock.ErrUpgrade)
		return nil
	}, wllock.Shared()))
	require.NoError(t, l.Do(t.Context(), "n", "k", func(context.Context) error {
		require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrQueueFull)
		return nil
	}))
	require.NoError(t, b.Close())
	require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable, "closed for good")
	require.NoError(t, l.Close(t.Context()))
	require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrClosed)
}

func TestLeadInsideAHoldWithoutALeaseIsRefused(t *testing.T) { // rule N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		b.Partition(true)
		refused := 0
		leads := func(ctx context.Context) error {
			require.True(t, heldIn(ctx).Degraded())
			begin := time.Now()
			err := l.Lead(ctx, "n", "a", never(t))
			require.ErrorContains(t, err, "Lead inside the caller's own hold of the same key, which has no lease")
			require.NotErrorIs(t, err, wllock.ErrUnavailable, "it does not wait for the backend")
			require.Zero(t, time.Since(begin))
			refused++
			return nil
		}
		require.NoError(t, l.Do(t.Context(), "n", "a", leads))
		require.NoError(t, l.DoAll(t.Context(), keys("a", "b"), leads))
		require.Equal(t, 2, refused)
	})
}

func TestLeaderInsideAHoldIsDeposedWhenTheLeaseExpires(t *testing.T) { // rule N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		begin, terms := time.Now(), 0
		lostAfter(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			err := l.Lead(ctx, "n", "k", func(ctx context.Context) error {
				terms++
				b.Partition(true)
				<-ctx.Done()
				require.LessOrEqual(t, time.Since(begin), ttl)
				require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
				return nil
			})
			require.ErrorIs(t, err, wllock.ErrLeaseLost)
			return nil
		}, wllock.WithLockTimeMax(0)))
		require.Equal(t, 1, terms)
		b.Partition(false)
		require.NoError(t, l.Lead(t.Context(), "n", "k", nothing))
	})
}

func TestLeaseThatHasLedInsideAHoldServesNobodyFurther(t *testing.T) { // rule N1
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
		next := make(chan error)
		require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
			require.NoError(t, l.Lead(ctx, "n", "k", nothing))
			go func() {
				next <- l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					require.False(t, held.Handoff())
					b.Partition(true)
					time.Sleep(2 * ttl)
					require.True(t, held.Degraded(), "it goes on, as without a leader before it")
					return nil
				}, wllock.WithLockTimeMax(0))
			}()
			synctest.Wait()
			return nil
		}))
		require.NoError(t, <-next)
		b.Partition(false)
	})
}

// What was lost is said once (rule T7), also to a leader inside the lost hold, and to calls that the loss keeps out.
func TestLossOfAHoldIsSaidOnceByWhatIsInside(t *testing.T) {
	lead := func(fn wllock.Func) func(context.Context, *wllock.Locker, func()) error {
		return func(ctx context.Context, l *wllock.Locker, lose func()) error {
			return l.Lead(ctx, "n", "k", func(ctx context.Context) error {
				lose()
				<-ctx.Done()
				return fn(ctx)
			})
		}
	}
	late := func(call func(context.Context, *wllock.Locker) error) func(context.Context, *wllock.Locker, func()) error {
		return func(ctx context.Context, l *wllock.Locker, lose func()) error {
			lose()
			<-ctx.Done()
			return call(ctx, l)
		}
	}
	for name, inside := range map[string]func(context.Context, *wllock.Locker, func()) error{
		"a leader":                 lead(func(ctx context.Context) error { return ctx.Err() }),
		"that returns the cause":   lead(func(ctx context.Context) error { return context.Cause(ctx) }),
		"that returns nothing":     lead(nothing),
		"that returns its own":     lead(func(context.Context) error { return errors.New("its own") }),
		"a leader that comes late": late(func(ctx context.Context, l *wllock.Locker) error { return l.Lead(ctx, "n", "k", never(t)) }),
		"a call that comes late":   late(func(ctx context.Context, l *wllock.Locker) error { return l.Do(ctx, "n", "k", never(t)) }),
		"several keys": late(func(ctx context.Context, l *wllock.Locker) error {
			return l.DoAll(ctx, []wllock.Resource{{Name: "n", Key: "k"}, {Name: "n", Key: "z"}}, never(t))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := newLocker(t)
				err := l.Do(t.Context(), "n", "k", func(ctx context.Context) error { return inside(ctx, l, func() { b.Expire("test:n:k") }) })
				lostAfter(t, err)
				require.Equal(t, 1, strings.Count(err.Error(), "lease lost"), "%v", err)
			})
		})
	}
}
