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
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestLead(t *testing.T) { // rule N4
	scene(t, "it returns what the function returns", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
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

	scene(t, "who loses the lock leads again", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
			loses(ctx, b, "k")
			require.ErrorIs(t, context.Cause(ctx), wllock.ErrLeaseLost)
			lost = time.Now()
			return []error{nil, own, ctx.Err()}[len(fences)-1] // whatever it is
		})
		require.Equal(t, own, err, "of the term that was not lost")
		require.IsIncreasing(t, fences)
	})

	scene(t, "it ends with its context", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		release := hold(t, lockerOn(t, b), "n", "k", forever)
		begin := time.Now()
		err := l.Lead(within(t, time.Hour), "n", "k", never(t), wllock.WithWait(time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded, "waiting")
		require.Equal(t, time.Hour, time.Since(begin))
		release()

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		require.Equal(t, context.Canceled, l.Lead(ctx, "n", "k", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		require.ErrorIs(t, l.Lead(ctx, "n", "k", never(t)), context.Canceled)

		ctx, cancel = context.WithCancel(t.Context())
		err = l.Lead(ctx, "n", "k", func(ctx context.Context) error {
			loses(ctx, b, "k")
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, wllock.ErrLeaseLost, "what went wrong last")
	})

	scene(t, "it refuses at once", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		require.ErrorIs(t, l.Lead(t.Context(), "n", "", never(t)), wllock.ErrInvalidKey)
		require.ErrorContains(t, l.Lead(t.Context(), "n", "k", never(t), wllock.Shared()), "Lead with Shared")
		require.ErrorContains(t, l.Lead(t.Context(), "n", "k", never(t), nil), "nil")
		require.ErrorContains(t, l.Lead(t.Context(), "n", "k", nil), "function is nil")
		require.ErrorContains(t, l.Lead(nil, "n", "k", never(t)), "context is nil") //lint:ignore SA1012 that is the test
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.ErrorIs(t, l.Lead(ctx, "n", "k", never(t)), wllock.ErrUpgrade)
		}, wllock.Shared())
		inside(t, l, keys("k"), func(context.Context) {
			require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrQueueFull)
		})
		require.NoError(t, b.Close())
		require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrUnavailable, "closed for good")
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, l.Lead(t.Context(), "n", "k", never(t)), wllock.ErrClosed)
	}, wllock.WithThreshold(0))
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
			require.Equal(t, 1, strings.Count(logged.String(), "cannot lead while the backend is unavailable"))
		})
	}
}

// What is over is not why a candidate does not lead: the backend was away for a minute, and another has had the lock since.
func TestLeadForgetsAnOutage(t *testing.T) { // rule N4
	bubble(t, "", func(t *testing.T) {
		b := memlock.New()
		l, leader := lockerOn(t, b), lockerOn(t, b)
		require.NoError(t, leader.Do(t.Context(), "n", "k", nothing, wllock.WithHoldAtLeast(time.Hour)))
		b.Partition(true)
		time.AfterFunc(time.Minute, func() { b.Partition(false) })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := l.Lead(ctx, "n", "k", never(t))
		cancel()
		require.ErrorIs(t, err, wllock.ErrUnavailable, "it is away")
		ctx, cancel = context.WithTimeout(t.Context(), 45*time.Minute)
		defer cancel()
		err = l.Lead(ctx, "n", "k", never(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, wllock.ErrUnavailable)
	})
}

func TestLeaderWithoutALease(t *testing.T) { // rule N1
	scene(t, "does not go on", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		terms := 0
		require.NoError(t, l.Lead(t.Context(), "n", "k", func(ctx context.Context) error {
			if terms++; terms == 2 {
				return nil
			}
			b.Partition(true)
			time.AfterFunc(10*ttl, func() { b.Partition(false) })
			require.LessOrEqual(t, elapsed(func() { <-ctx.Done() }), ttl)
			return nil
		}))
	}, wllock.WithOutage(wllock.LocalOnly))

	scene(t, "is refused inside a hold", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
	}, wllock.WithOutage(wllock.LocalOnly))

	scene(t, "is deposed inside a hold when the lease expires", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
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
		}, forever))
		require.Equal(t, 1, terms)
		b.Partition(false)
		require.NoError(t, l.Lead(t.Context(), "n", "k", nothing))
	}, wllock.WithOutage(wllock.LocalOnly))

	scene(t, "the lease that has led inside a hold serves nobody further", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		next := make(chan error)
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.NoError(t, l.Lead(ctx, "n", "k", nothing))
			go func() {
				next <- l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					require.False(t, held.Handoff())
					b.Partition(true)
					time.Sleep(2 * ttl)
					require.True(t, held.Degraded(), "it goes on, as without a leader before it")
					return nil
				}, forever)
			}()
			synctest.Wait()
		})
		require.NoError(t, <-next)
		b.Partition(false)
	}, wllock.WithOutage(wllock.LocalOnly))
}

// What was lost is said once (rule T7), also to a leader inside the lost hold, and to calls that the loss keeps out: they have not run, but
// the function around them has.
func TestLossOfAHoldIsSaidOnceByWhatIsInside(t *testing.T) {
	for name, c := range map[string]struct {
		leads bool // the lock is lost inside of a leader
		then  func(context.Context, *wllock.Locker) error
	}{
		"a leader":                 {true, func(ctx context.Context, _ *wllock.Locker) error { return ctx.Err() }},
		"that returns the cause":   {true, func(ctx context.Context, _ *wllock.Locker) error { return context.Cause(ctx) }},
		"that returns nothing":     {true, func(context.Context, *wllock.Locker) error { return nil }},
		"that returns its own":     {true, func(context.Context, *wllock.Locker) error { return errors.New("its own") }},
		"a leader that comes late": {false, func(ctx context.Context, l *wllock.Locker) error { return l.Lead(ctx, "n", "k", never(t)) }},
		"a call that comes late":   {false, func(ctx context.Context, l *wllock.Locker) error { return l.Do(ctx, "n", "k", never(t)) }},
		"several keys":             {false, func(ctx context.Context, l *wllock.Locker) error { return l.DoAll(ctx, keys("k", "z"), never(t)) }},
	} {
		scene(t, name, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			inner := func(ctx context.Context) error {
				loses(ctx, b, "k")
				return c.then(ctx, l)
			}
			outer := inner
			if c.leads {
				outer = func(ctx context.Context) error { return l.Lead(ctx, "n", "k", inner) }
			}
			err := l.Do(t.Context(), "n", "k", outer)
			lostAfter(t, err)
			require.ErrorContains(t, err, `hold "test:n:k": lease lost`)
			require.Equal(t, 1, strings.Count(err.Error(), "lease lost"), "%v", err)
		})
	}
}

// The backend keeps how the jobs of Lead, and of calls WithHoldAtLeast, have ended.
func TestJobsAreNoted(t *testing.T) {
	scene(t, "", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		stays := wllock.WithHoldAtLeast(time.Minute)
		noted := func(key, result string, succeeded bool) distributed.Run {
			t.Helper()
			synctest.Wait()
			all, err := b.Runs(t.Context(), "test:n:"+key)
			require.NoError(t, err)
			require.Len(t, all, 1)
			r := all[0].Last
			require.Equal(t, result, r.Result)
			require.Equal(t, l.Instance(), r.Instance)
			require.NotZero(t, r.Fence)
			require.Equal(t, succeeded, r == all[0].Success)
			return r
		}
		require.NoError(t, l.Do(t.Context(), "n", "plain", nothing))
		began := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "tick", func(ctx context.Context) error {
			time.Sleep(time.Second)
			return l.Do(ctx, "n", "tick", nothing, stays) // nested: it is the same run
		}, stays))
		r := noted("tick", "ok", true)
		require.Equal(t, began, r.Began)
		require.Equal(t, time.Second, r.Took)
		require.Equal(t, began.Add(time.Minute), r.Until)
		require.Error(t, l.Do(t.Context(), "n", "tick", never(t), stays, wllock.NoWait())) // is no run

		require.Error(t, l.Do(t.Context(), "n", "fails", func(context.Context) error { return errors.New("secret") }, stays))
		noted("fails", "error", false)
		require.Panics(t, func() { _ = l.Do(t.Context(), "n", "panics", func(context.Context) error { panic("secret") }, stays) })
		noted("panics", "panic", false)
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, l.Lead(ctx, "n", "leads", func(ctx context.Context) error { cancel(); return ctx.Err() }), context.Canceled)
		require.Zero(t, noted("leads", "canceled", false).Until)
		lostAfter(t, l.Do(t.Context(), "n", "lost", func(ctx context.Context) error { loses(ctx, b, "lost"); return nil }, stays, forever))
		require.Zero(t, noted("lost", "lock lost", false).Until, "others may have it")
		require.Error(t, l.Do(t.Context(), "n", "again", func(context.Context) error { return errors.New("secret") }, stays, wllock.ReleaseOnError()))
		require.Zero(t, noted("again", "error", false).Until, "it is free")
		all, err := b.Runs(t.Context(), "test:")
		require.NoError(t, err)
		require.Len(t, all, 6)
		runs := l.Stats().Runs
		require.Len(t, runs, 6)
		require.Equal(t, noted("again", "error", false), runs[0], "the latest first")
	})
}
