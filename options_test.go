package wllock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

func TestOptionsCallBeatsNameBeatsDefaultsLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t,
			wllock.WithDefaults(wllock.WithWait(time.Second)),
			wllock.WithName("quick", wllock.WithWait(100*time.Millisecond)),
			wllock.WithName("quick", wllock.WithLockTimeMax(time.Minute)))
		for _, name := range []string{"quick", "other"} {
			defer hold(t, l, name, "k", wllock.WithLockTimeMax(0))()
		}
		waited := func(name string, opts ...wllock.CallOption) time.Duration {
			begin := time.Now()
			require.Error(t, l.Do(t.Context(), name, "k", never(t), opts...))
			return time.Since(begin)
		}
		require.Equal(t, time.Second, waited("other"))
		require.Equal(t, 100*time.Millisecond, waited("quick"))
		require.Equal(t, 50*time.Millisecond, waited("quick", wllock.WithWait(50*time.Millisecond)))
		require.Zero(t, waited("quick", wllock.WithWait(time.Hour), wllock.NoWait()))
		require.Equal(t, time.Millisecond, waited("quick", wllock.NoWait(), wllock.WithWait(time.Millisecond)))
	})
}

func TestSyncReleaseReturnsAfterTheAnswer(t *testing.T) {
	l, b := newLocker(t)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.SyncRelease()))
	require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()))
}

// TestLongestTimes: the largest duration is as good as no limit.
func TestLongestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, wllock.WithLeaseTTL(math.MaxInt64), wllock.WithLinger(math.MaxInt64), wllock.WithMaxTenure(math.MaxInt64))
		for range 3 {
			require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return ctx.Err()
			}, wllock.WithLockTimeMax(math.MaxInt64), wllock.WithWait(math.MaxInt64)))
			require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(1)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		release := hold(t, l, "n", "k", wllock.WithLockTimeMax(math.MaxInt64))
		done := make(chan error)
		go func() { done <- l.Do(ctx, "n", "k", nothing, wllock.WithWait(math.MaxInt64)) }()
		time.Sleep(time.Hour)
		release()
		require.NoError(t, <-done)
		cancel()
	})
}

func TestWrongOptionsAreAllNamedAtOnce(t *testing.T) {
	_, err := wllock.New("bad system", nil, wllock.WithLeaseTTL(time.Millisecond), wllock.WithMaxHandoffs(-1),
		wllock.WithMaxTenure(0), wllock.WithLinger(-1), wllock.WithOutage(2), wllock.WithThreshold(-2),
		wllock.WithName("a:b"), wllock.WithName("n", wllock.WithWait(-1)), wllock.WithLogger(nil))
	for _, part := range []string{"bad system", "backend", "WithLeaseTTL", "WithMaxHandoffs", "WithMaxTenure", "WithLinger",
		"WithOutage", "WithThreshold(-2)", "a:b", "WithWait", "WithLogger"} {
		require.ErrorContains(t, err, part)
	}
}

func TestWrongCallOptionIsRefusedAtTheCall(t *testing.T) {
	l, _ := newLocker(t)
	require.ErrorContains(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithLockTimeMax(-1)), "WithLockTimeMax")
	require.ErrorContains(t, l.SetThreshold("n", -2), "-2")
	require.ErrorIs(t, l.SetThreshold("a:b", 2), wllock.ErrInvalidKey)
}

func TestWrongOptionsAreNamedAsTheyWereGiven(t *testing.T) {
	l, b := newLocker(t)
	_, err := wllock.New("test", b, nil, wllock.WithThreshold(-5))
	require.EqualError(t, err, "wllock: option 1 of 2 is nil; WithThreshold(-5): want 0 (no caller waits) or more, or Unlimited")
	_, err = wllock.New("test", b, wllock.WithName("n", nil), wllock.WithDefaults(wllock.WithCallThreshold(-5)))
	require.EqualError(t, err, "wllock: WithCallThreshold(-5): want 0 (no caller waits) or more, or Unlimited; "+
		"WithName(\"n\"): call option 1 of 1 is nil")
	require.EqualError(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(-1)),
		"wllock: WithWait(-1ns): want 0 (until the context ends) or more")
}

// TestNilIsAnErrorOfTheCall: not a panic inside the lock.
func TestNilIsAnErrorOfTheCall(t *testing.T) {
	l, _ := newLocker(t)
	ctx, id := t.Context(), func(key string) string { return key }
	work := func(context.Context, string) (int, error) { return 1, never(t)(ctx) }
	otherwise := func(context.Context, string, error) (int, error) { return 1, nil }
	second := func(_ any, err error) error { return err }
	for what, err := range map[string]error{
		"Do":             l.Do(ctx, "n", "k", nil),
		"Do, fallback":   l.Do(ctx, "n", "k", nil, wllock.WithFallback(func(context.Context, error) error { return nil })),
		"Guard":          l.Guard("n", "k", nil)(ctx),
		"Call":           second(wllock.Call[int](ctx, l, "n", "k", nil)),
		"Wrap key":       second(wllock.Wrap(l, "n", nil, work)(ctx, "k")),
		"Wrap":           second(wllock.Wrap[string, int](l, "n", id, nil)(ctx, "k")),
		"WrapOr key":     second(wllock.WrapOr(l, "n", nil, work, otherwise)(ctx, "k")),
		"WrapOr":         second(wllock.WrapOr(l, "n", id, nil, otherwise)(ctx, "k")),
		"WrapOr or":      second(wllock.WrapOr(l, "n", id, work, nil)(ctx, "k")),
		"option":         l.Do(ctx, "n", "k", never(t), nil),
		"Acquire option": second(l.Acquire(ctx, "n", "k", nil)),
		//lint:ignore SA1012 this is what is tested
		"context": l.Do(nil, "n", "k", never(t)),
	} {
		require.ErrorContains(t, err, "nil", what)
	}
	require.Zero(t, l.Stats().Total.Acquired)
}
