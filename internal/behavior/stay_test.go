package behavior

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

const least = 30 * time.Second

var atLeast = wllock.WithHoldAtLeast(least)

// freeAfter returns when another instance gets the lock test:n:k.
func freeAfter(t *testing.T, l *wllock.Locker) time.Duration {
	return elapsed(func() { require.NoError(t, l.Do(t.Context(), "n", "k", nothing)) })
}

func TestLockStaysTakenForAtLeastThatLong(t *testing.T) { // rule N2
	own := errors.New("own")
	for name, fn := range map[string]wllock.Func{
		"success": nothing,
		"error":   func(context.Context) error { return own },
		"panic":   func(context.Context) error { panic(own) },
	} {
		for _, who := range []string{"the same Locker", "another Locker"} {
			scene(t, name+", "+who, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
				o := l
				if who == "another Locker" {
					o = lockerOn(t, b)
				}
				begin := time.Now()
				func() {
					defer func() { _ = recover() }()
					_ = l.Do(t.Context(), "n", "k", fn, atLeast)
				}()
				require.Zero(t, time.Since(begin), "Do returns when the function has")
				require.ErrorIs(t, o.Do(t.Context(), "n", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
				require.ErrorIs(t, o.Do(t.Context(), "n", "k", never(t), wllock.WithWait(least-time.Second)), wllock.ErrWaitTimeout)
				freeAfter(t, o)
				require.Equal(t, least, time.Since(begin))
			})
		}
	}
}

func TestHoldAtLeast(t *testing.T) { // rule N2
	scene(t, "an acquired lock stays taken", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		k := acquire(t, l, "k", atLeast)
		time.Sleep(least / 10)
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, k.Release(t.Context()), "again")
		require.True(t, l.Locks(1)[0].Staying)
		require.Equal(t, 1, l.Locks(1)[0].Holders)
		require.Equal(t, 9*least/10, freeAfter(t, l), "counted from Acquire")
	})

	scene(t, "SyncRelease does not wait", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule N3
		require.Zero(t, elapsed(func() { require.NoError(t, l.Do(t.Context(), "n", "k", nothing, atLeast, wllock.SyncRelease())) }))
		require.Equal(t, least, freeAfter(t, lockerOn(t, b)))
		require.NoError(t, l.Do(t.Context(), "n", "k", takes(2*least), atLeast, forever, wllock.SyncRelease()))
		require.NoError(t, lockerOn(t, b).Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "released at the backend")
	})

	scene(t, "it serves nobody on its own lease", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule N1
		var last []time.Duration
		run := func(opts ...wllock.CallOption) {
			inside(t, l, keys("k"), func(ctx context.Context) {
				held, _ := wllock.HeldFrom(ctx)
				require.False(t, held.Handoff())
				last = append(last, time.Until(held.Until()))
			}, opts...)
		}
		run()        // its lease lingers
		run(atLeast) // needs a longer one
		require.Equal(t, least, freeAfter(t, lockerOn(t, b)), "the lease did not linger")
		go run(atLeast) // a waiter behind it gets a lease of the usual T
		synctest.Wait()
		run()
		require.Less(t, last[0], ttl)
		require.GreaterOrEqual(t, last[1], least)
		require.GreaterOrEqual(t, last[2], least)
		require.Less(t, last[3], ttl)
	}, wllock.WithLinger(time.Minute))

	scene(t, "its lease is not handed on", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) { // rule N1
		started(l, keys("k"), takes(2*least), atLeast, forever)
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.Less(t, time.Until(heldIn(ctx).Until()), ttl, "a process that dies keeps the lock for T, not longer")
		})
	})

	scene(t, "a place of another TTL is not taken over", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rules N1 and T3
		release := hold(t, lockerOn(t, b), "n", "k")
		started(l, keys("k"), never(t), wllock.WithWait(time.Second))
		time.AfterFunc(2*time.Second, release)
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.GreaterOrEqual(t, time.Until(heldIn(ctx).Until()), least)
		}, atLeast)
	})

	scene(t, "nested guards", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) { // rules N2 and L6
		begin := time.Now()
		inside(t, l, keys("k"), func(ctx context.Context) {
			time.Sleep(time.Second)
			require.NoError(t, l.Do(ctx, "n", "k", nothing))
			require.NoError(t, l.Do(ctx, "n", "k", nothing, atLeast), "counts from the start of the outer one")
			require.ErrorContains(t, l.Do(ctx, "n", "k", never(t), wllock.WithHoldAtLeast(2*least)), "asked for less")
		}, atLeast)
		freeAfter(t, l)
		require.Equal(t, least, time.Since(begin))
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.ErrorContains(t, l.Do(ctx, "n", "k", never(t), atLeast), "asked for less")
		})
	})

	scene(t, "several keys", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		o := lockerOn(t, b)
		both := keys("k", "k2")
		release := hold(t, o, "n", "k2")
		require.ErrorIs(t, l.DoAll(t.Context(), both, never(t), wllock.NoWait(), atLeast), wllock.ErrHeld)
		require.NoError(t, o.Do(t.Context(), "n", "k", nothing, wllock.WithWait(time.Second)), "all or none: the function has not run")
		release()
		for _, opts := range [][]wllock.CallOption{{atLeast}, {atLeast, wllock.SyncRelease()}} {
			require.NoError(t, l.DoAll(t.Context(), both, nothing, opts...))
			require.ErrorIs(t, o.Do(t.Context(), "n", "k2", never(t), wllock.NoWait()), wllock.ErrHeld)
			require.Equal(t, least, freeAfter(t, o))
			require.NoError(t, o.Do(t.Context(), "n", "k2", nothing))
		}
		both[1].Shared = true
		require.ErrorContains(t, l.DoAll(t.Context(), both, never(t), atLeast), "with Shared")
	})

	scene(t, "it is refused where it makes no sense", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		for name, opts := range map[string][]wllock.CallOption{
			"with Shared": {wllock.Shared(), atLeast},
			"want 0":      {wllock.WithHoldAtLeast(-1)},
			"8784h":       {wllock.WithHoldAtLeast(1 << 62)},
		} {
			require.ErrorContains(t, l.Do(t.Context(), "n", "k", never(t), opts...), name)
		}
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, atLeast, wllock.WithHoldAtLeast(0)))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "the last one wins: off")
	})

	bubble(t, "its loss is logged", func(t *testing.T) {
		var logged strings.Builder
		var last interface{ End() bool }
		b := leasing{memlock.New(), func(l distributed.Lease) distributed.Lease {
			last = l.(interface{ End() bool })
			return l
		}}
		l := lockerOn(t, b, logTo(&logged))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, atLeast))
		last.End()
		synctest.Wait()
		require.Contains(t, logged.String(), "lock lost after its function has returned")
		require.Zero(t, l.Stats().Total.Held)
		require.Zero(t, l.Stats().Total.Lost, "no caller has lost it")
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing), "the turn has been passed on")
	})

	bubble(t, "a slow answer is renewed before the function runs", func(t *testing.T) {
		b, late := memlock.New(), distributed.HeartbeatInterval(ttl)
		slow := func(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
			l, p, err := b.Enter(ctx, req)
			time.Sleep(late) // renewals are quick
			return l, p, err
		}
		l, o := lockerOn(t, entering{b, slow}), lockerOn(t, b)
		for _, d := range []time.Duration{time.Millisecond, 2 * ttl} { // the drift allowance is below H
			begin := time.Now()
			require.NoError(t, l.Do(t.Context(), "n", d.String(), func(ctx context.Context) error {
				require.Equal(t, late, time.Since(begin), "an answer that takes H leaves enough without a renewal")
				usual := distributed.ClaimWindow(ttl) - distributed.Drift(ttl) - late
				require.GreaterOrEqual(t, time.Until(heldIn(ctx).Until()), max(d, usual), "nor is the lease shorter than others")
				return nil
			}, wllock.WithHoldAtLeast(d)))
		}
		late = least / 4
		begin := time.Now()
		inside(t, l, keys("k"), func(ctx context.Context) {
			require.Less(t, time.Since(begin), late+ttl/10, "renewed at once")
			require.GreaterOrEqual(t, time.Until(heldIn(ctx).Until()), least)
		}, atLeast)
		require.Equal(t, least, freeAfter(t, o))
		for wait, want := range map[time.Duration]error{least / 3: wllock.ErrWaitTimeout, 2 * least: wllock.ErrUnavailable} {
			time.AfterFunc(time.Second, func() { b.Partition(true) })
			err := l.Do(t.Context(), "n", "k", never(t), atLeast, wllock.WithWait(wait))
			require.ErrorIs(t, err, want, "the lease was not renewed, and is lost after %v", least)
			b.Partition(false)
			time.Sleep(2 * time.Second) // rule O2
			freeAfter(t, o)
		}
	})

	bubble(t, "a backend with short leases refuses", func(t *testing.T) {
		l := lockerOn(t, asking(memlock.New(), func(_ context.Context, r *distributed.Request) error {
			r.TTL = min(r.TTL, 10*time.Second)
			return nil
		}))
		err := l.Do(t.Context(), "n", "k", never(t), atLeast)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "the lock is to stay taken for 30s")
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithHoldAtLeast(3*time.Second)))
	})

	scene(t, "nobody has it without a lease", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule N1
		b.Partition(true)
		defer b.Partition(false)
		require.NoError(t, l.Do(t.Context(), "n", "other", nothing), "degraded")
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), atLeast), wllock.ErrUnavailable)
		inside(t, l, keys("k"), func(ctx context.Context) { require.True(t, heldIn(ctx).Degraded()) })
		ran := errors.New("ran")
		fallback := wllock.WithFallback(func(context.Context, error) error { return ran })
		require.ErrorIs(t, l.Do(t.Context(), "n", "k", never(t), atLeast, fallback), ran)
	}, wllock.WithOutage(wllock.LocalOnly))

	scene(t, "a batch stays taken", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rules N2 and B4
		begin, runs := time.Now(), []time.Duration{}
		d := newDesk(l, func(ctx context.Context, all batch) error {
			runs = append(runs, time.Since(begin))
			return doubling(ctx, all)
		}, atLeast)
		for range 2 {
			_, err := d.call(t.Context(), 1)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{0, least}, runs)
		require.Equal(t, least, freeAfter(t, lockerOn(t, b)))
	})
}

func TestLockStaysTakenWhenItsProcessDies(t *testing.T) { // rule N2
	for name, test := range map[string]struct {
		runs    time.Duration // until it dies
		max     time.Duration
		latest  time.Duration
		returns bool
	}{
		"at once":                      {runs: 0, max: least, latest: least + 2*time.Second},
		"after the function":           {runs: least / 10, max: 2 * least, latest: least + 2*time.Second, returns: true},
		"in a function that may last":  {runs: least / 2, max: 0, latest: 3 * least},
		"in a function that may not":   {runs: least / 2, max: least, latest: least + 2*time.Second},
		"after a function that might":  {runs: least * 9 / 10, max: 0, latest: 4 * least, returns: true},
		"after one that took its time": {runs: least * 9 / 10, max: least, latest: least + 2*time.Second, returns: true},
	} {
		for _, all := range [][]wllock.Resource{keys("k"), keys("k", "l")} {
			bubble(t, fmt.Sprint(name, ", keys: ", len(all)), func(t *testing.T) {
				b := memlock.New()
				m := &mortal{Backend: b}
				l, other := lockerOn(t, m), lockerOn(t, b)
				begin := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				fn := takes(test.runs)
				if !test.returns {
					fn = func(context.Context) error { <-ctx.Done(); return nil }
				}
				done := started(l, all, fn, atLeast, wllock.WithLockTimeMax(test.max))
				time.Sleep(test.runs + time.Millisecond)
				m.die()
				freeAfter(t, other)
				took := time.Since(begin)
				require.GreaterOrEqual(t, took, least)
				require.LessOrEqual(t, took, test.latest)
				cancel()
				<-done
			})
		}
	}
}

func TestCloseDoesNotWaitAndTheLockStaysTaken(t *testing.T) { // rule N3
	for name, max := range map[string]time.Duration{"never renewed": least, "renewed": 0} {
		for when, closes := range map[string]time.Duration{"while it runs": 0, "afterwards": least * 8 / 10} {
			scene(t, name+", "+when, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
				begin := time.Now()
				closed := make(chan error)
				go func() {
					time.Sleep(closes + time.Millisecond) // inside, in any case
					closed <- l.Close(t.Context())
				}()
				require.NoError(t, l.Do(t.Context(), "n", "k", takes(least/2), atLeast, wllock.WithLockTimeMax(max)))
				require.NoError(t, <-closed)
				require.LessOrEqual(t, time.Since(begin), least*9/10)
				require.Zero(t, l.Stats().Total.Held)
				freeAfter(t, lockerOn(t, b))
				require.GreaterOrEqual(t, time.Since(begin), least)
			})
		}
	}
}

// A job that has failed gives back the rest of its time, if it was asked to: nothing else does.
func TestAFailedJobGivesItsTimeBack(t *testing.T) { // rule N2
	own := errors.New("own")
	fails := func(context.Context) error { return own }
	for name, c := range map[string]struct {
		run  func(*testing.T, *wllock.Locker) error
		stay time.Duration
	}{
		"error": {func(t *testing.T, l *wllock.Locker) error {
			return l.Do(t.Context(), "n", "k", fails, atLeast, wllock.ReleaseOnError())
		}, 0},
		"success": {func(t *testing.T, l *wllock.Locker) error {
			return l.Do(t.Context(), "n", "k", nothing, atLeast, wllock.ReleaseOnError())
		}, least},
		"all": {func(t *testing.T, l *wllock.Locker) error {
			return l.DoAll(t.Context(), keys("k", "m"), fails, atLeast, wllock.ReleaseOnError())
		}, 0},
		"all, success": {func(t *testing.T, l *wllock.Locker) error {
			return l.DoAll(t.Context(), keys("k", "m"), nothing, atLeast, wllock.ReleaseOnError())
		}, least},
		"panic": {func(t *testing.T, l *wllock.Locker) (err error) {
			defer func() { err = recover().(error) }()
			return l.Do(t.Context(), "n", "k", func(context.Context) error { panic(own) }, atLeast, wllock.ReleaseOnError())
		}, 0},
		"a guard inside": {func(t *testing.T, l *wllock.Locker) error {
			return l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				require.ErrorIs(t, l.Do(ctx, "n", "k", fails, wllock.ReleaseOnError()), own)
				k, err := l.Acquire(ctx, "n", "k")
				require.NoError(t, err)
				return k.ReleaseEarly(ctx)
			}, atLeast)
		}, least},
		"an acquired lock": {func(t *testing.T, l *wllock.Locker) error {
			k := acquire(t, l, "k", atLeast)
			require.Error(t, k.ReleaseEarly(nil)) //lint:ignore SA1012 that is the test
			return k.ReleaseEarly(t.Context())
		}, 0},
	} {
		scene(t, name, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			if err := c.run(t, l); err != nil {
				require.Equal(t, own, err)
			}
			require.Equal(t, c.stay, freeAfter(t, lockerOn(t, b)))
		})
	}
}
