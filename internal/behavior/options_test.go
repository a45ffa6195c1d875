package behavior

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testscope"
)

func TestOptions(t *testing.T) {
	bubble(t, "call beats name beats defaults, and the last wins", func(t *testing.T) {
		l, _ := newLocker(t,
			wllock.WithDefaults(wllock.WithWait(time.Second)),
			wllock.WithName("quick", wllock.WithWait(100*time.Millisecond)),
			wllock.WithName("quick", wllock.WithLockTimeMax(time.Minute)))
		for _, name := range []string{"quick", "other"} {
			defer hold(t, l, name, "k", forever)()
		}
		waited := func(name string, opts ...wllock.CallOption) time.Duration {
			return elapsed(func() { require.Error(t, l.Do(t.Context(), name, "k", never(t), opts...)) })
		}
		require.Equal(t, time.Second, waited("other"))
		require.Equal(t, 100*time.Millisecond, waited("quick"))
		require.Equal(t, 50*time.Millisecond, waited("quick", wllock.WithWait(50*time.Millisecond)))
		require.Zero(t, waited("quick", wllock.WithWait(time.Hour), wllock.NoWait()))
		require.Equal(t, time.Millisecond, waited("quick", wllock.NoWait(), wllock.WithWait(time.Millisecond)))
	})

	scene(t, "the largest duration is as good as no limit", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		for range 3 {
			require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return ctx.Err()
			}, wllock.WithLockTimeMax(math.MaxInt64), wllock.WithWait(math.MaxInt64)))
			require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithWait(1)))
		}
		release := hold(t, l, "n", "k", wllock.WithLockTimeMax(math.MaxInt64))
		waits := started(l, keys("k"), nothing, wllock.WithWait(math.MaxInt64))
		time.Sleep(time.Hour)
		release()
		require.NoError(t, <-waits)
	}, wllock.WithLeaseTTL(math.MaxInt64), wllock.WithLinger(math.MaxInt64), wllock.WithMaxTenure(math.MaxInt64))

	scene(t, "a line of as many instances as allowed", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		holder, waiter, one := lockerOn(t, b), lockerOn(t, b), wllock.WithFleetThreshold(1)
		release := hold(t, holder, "n", "k")
		first, second := started(waiter, keys("k"), nothing, one), started(waiter, keys("k"), nothing, one)
		e := refusal(t, l.Do(t.Context(), "n", "k", never(t), one), wllock.ErrQueueFull, wllock.TierDistributed)
		require.Equal(t, holder.Instance(), e.Holder)
		require.Positive(t, e.RetryAfter)
		require.ErrorContains(t, e, "as many instances wait for the lock")
		require.EqualValues(t, 1, l.Stats().Names["n"].Shed)
		refusal(t, l.Do(t.Context(), "n", "k", never(t), one, wllock.NoWait()), wllock.ErrHeld, wllock.TierDistributed)
		release()
		require.NoError(t, errors.Join(<-first, <-second))
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, one))
		require.ErrorContains(t, l.Do(t.Context(), "n", "k", nothing, wllock.WithFleetThreshold(0)), "WithFleetThreshold(0): want 1 or more")
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, one, wllock.WithFleetThreshold(wllock.Unlimited)))
	})

	scene(t, "thresholds of call, name and default", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		admitted := func(name string, opts ...wllock.CallOption) (n int64) {
			before := l.Stats().Names[name].Shed
			release := hold(t, l, name, "k")
			for range 10 {
				started(l, []wllock.Resource{{Name: name, Key: "k"}}, nothing, opts...)
			}
			n = l.Stats().Names[name].Waiting
			require.EqualValues(t, 10-n, l.Stats().Names[name].Shed-before)
			release()
			synctest.Wait()
			return n
		}
		require.EqualValues(t, 1, admitted("n"))
		require.EqualValues(t, 3, admitted("wide"))
		require.EqualValues(t, 5, admitted("wide", wllock.WithCallThreshold(5)))
		require.EqualValues(t, 10, admitted("n", wllock.WithCallThreshold(wllock.Unlimited)))
		require.NoError(t, l.SetThreshold("", 2))
		require.NoError(t, l.SetThreshold("wide", 0))
		require.EqualValues(t, 2, admitted("n"))
		require.EqualValues(t, 0, admitted("wide"))
	}, wllock.WithThreshold(1), wllock.WithName("wide", wllock.WithCallThreshold(3)))

	scene(t, "Stats", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		release := hold(t, l, "n", "k")
		next := started(l, keys("k"), nothing)
		n := l.Stats().Names["n"]
		require.Equal(t, []int64{1, 1}, []int64{n.Held, n.Waiting})
		release()
		require.NoError(t, <-next)
		require.NoError(t, l.Do(t.Context(), "own", "k", nothing))
		s := l.Stats()
		require.Equal(t, []int64{0, 0}, []int64{s.Total.Held, s.Total.Waiting})
		require.Equal(t, []uint64{3, 1}, []uint64{s.Total.Acquired, s.Total.Handoffs})
		require.Equal(t, []int{7, 3, 0}, []int{s.Names["n"].Threshold, s.Names["own"].Threshold, s.Total.Threshold})
		require.NoError(t, l.SetThreshold("n", wllock.Unlimited))
		require.Equal(t, wllock.Unlimited, l.Stats().Names["n"].Threshold)
		require.Equal(t, "test", l.System())
	}, wllock.WithThreshold(7), wllock.WithName("own", wllock.WithCallThreshold(3)))

	// Their figures are counted together, and all else is as with others.
	bubble(t, "too many names still lock", func(t *testing.T) {
		var lines []string
		l, _ := newLocker(t, wllock.WithThreshold(1), wllock.WithName("configured", wllock.WithCallThreshold(3)),
			logging(func(_ context.Context, r slog.Record) { lines = append(lines, r.Message) }))
		const most, more = 10_000, 100
		for i := range most + more {
			require.NoError(t, l.Do(t.Context(), strconv.Itoa(i), "k", nothing))
		}
		synctest.Wait()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "too many lock names")
		s := l.Stats()
		require.Len(t, s.Names, most+1)
		require.EqualValues(t, more, s.Names["(other)"].Acquired)
		require.EqualValues(t, most+more, s.Total.Acquired)

		release := hold(t, l, "beyond", "k")
		require.ErrorIs(t, l.Do(t.Context(), "beyond", "k", never(t), wllock.NoWait()), wllock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "further", "k", func(ctx context.Context) error {
			held, _ := wllock.HeldKey(ctx, "further", "k")
			require.Equal(t, "test:further:k", held.Key())
			require.EqualValues(t, 2, l.Stats().Names["(other)"].Held)
			return l.Do(ctx, "further", "k", nothing, wllock.NoWait()) // reentrant
		}, wllock.NoWait()))
		release()
		for name, limit := range map[string]int{"beyond": 1, "configured": 3, "set": 2} {
			if name == "set" {
				require.NoError(t, l.SetThreshold(name, limit))
			}
			release := hold(t, l, name, "k")
			for range limit {
				started(l, []wllock.Resource{{Name: name, Key: "k"}}, nothing)
			}
			require.ErrorIs(t, l.Do(t.Context(), name, "k", never(t)), wllock.ErrQueueFull, name)
			release()
			synctest.Wait()
		}
		require.Contains(t, l.Stats().Names, "set")
		require.Contains(t, l.Stats().Names, "configured")
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

func TestWrongOptionsAreNamedAsTheyWereGiven(t *testing.T) {
	l, b := newLocker(t)
	_, err := wllock.New("test", b, nil, wllock.WithThreshold(-5))
	require.EqualError(t, err, "wllock: option 1 of 2 is nil; WithThreshold(-5): want 0 (no caller waits) or more, or Unlimited")
	_, err = wllock.New("test", b, wllock.WithName("n", nil), wllock.WithDefaults(wllock.WithCallThreshold(-5)))
	require.EqualError(t, err, "wllock: WithCallThreshold(-5): want 0 (no caller waits) or more, or Unlimited; "+
		"WithName(\"n\"): call option 1 of 1 is nil")
	require.EqualError(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithWait(-1)),
		"wllock: WithWait(-1ns): want 0 (until the context ends) or more")
	require.ErrorContains(t, l.Do(t.Context(), "n", "k", never(t), wllock.WithLockTimeMax(-1)), "WithLockTimeMax")
	require.ErrorContains(t, l.SetThreshold("n", -2), "-2")
	require.ErrorIs(t, l.SetThreshold("a:b", 2), wllock.ErrInvalidKey)
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

// TestNewNamesAreCheap: however many there are, as in Do(ctx, "product-1000", "x").
func TestNewNamesAreCheap(t *testing.T) {
	l, _ := newLocker(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 5000
	for i := range n {
		require.NoError(t, l.Do(t.Context(), strconv.Itoa(i), "k", nothing))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/n, uint64(10_000))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = l.Do(context.Background(), "17", "k", nothing) }), 5.0)
}

// TestNewNameOfManyCallersIsCountedOnce: all that ask for it first, at the same time, get the same figures.
func TestNewNameOfManyCallersIsCountedOnce(t *testing.T) {
	l, _ := newLocker(t)
	const names, callers = 300, 8
	for i := range names {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() { _ = l.Do(t.Context(), strconv.Itoa(i), "k", nothing) })
		}
		wg.Wait()
	}
	for name, s := range l.Stats().Names {
		require.EqualValues(t, callers, s.Acquired, name)
	}
}

// shedLoads are steady loads of one key: how long each caller stays, 10 ms on average.
var shedLoads = map[string]func(r *rand.Rand) time.Duration{
	"constant":    func(*rand.Rand) time.Duration { return 10 * time.Millisecond },
	"uniform":     func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(20 * time.Millisecond))) },
	"exponential": func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(10*time.Millisecond)) },
	"one in ten is long": func(r *rand.Rand) time.Duration {
		if r.IntN(10) == 0 {
			return 55 * time.Millisecond
		}
		return 5 * time.Millisecond
	},
}

// shopping has so many callers come, one after the other, at load times the capacity of a lock that serves n of them at a time, and returns
// how they ended.
func shopping(t *testing.T, stays func(*rand.Rand) time.Duration, load float64, n, callers int, budget func(*rand.Rand) time.Duration,
	opts ...wllock.CallOption) (served, shed, inVain int) {
	l, _ := newLocker(t, wllock.WithThreshold(wllock.Unlimited), wllock.WithDefaults(opts...))
	r := rand.New(rand.NewPCG(1, 0))
	var mu sync.Mutex // guards the results
	for range callers {
		wait, stay := budget(r), stays(r)
		go func() {
			err := l.Do(context.Background(), "n", "k", takes(stay), wllock.WithWait(wait))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				served++
			case errors.Is(err, wllock.ErrQueueFull):
				shed++
			case errors.Is(err, wllock.ErrWaitTimeout):
				inVain++
			}
		}()
		synctest.Wait()
		time.Sleep(time.Duration(r.ExpFloat64() * float64(10*time.Millisecond) / load / float64(n)))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return served, shed, inVain
}

// What the documentation of WithShedHopeless says: nearly as many are served as without it, and most of the others are refused at once.
func TestShedHopeless(t *testing.T) {
	type wait struct {
		name string
		draw func(*rand.Rand) time.Duration
	}
	tenTurns := wait{"ten turns", func(*rand.Rand) time.Duration { return 100 * time.Millisecond }}
	waits := testscope.Scale([]wait{tenTurns}, []wait{
		tenTurns, {"sixty turns", func(*rand.Rand) time.Duration { return 600 * time.Millisecond }},
		{"five to fifty", func(r *rand.Rand) time.Duration {
			return 50*time.Millisecond + time.Duration(r.Int64N(int64(450*time.Millisecond)))
		}},
	})
	for name, stays := range shedLoads {
		for _, wait := range waits {
			for _, load := range []float64{1.5, 3} {
				for _, n := range testscope.Scale([]int{1}, []int{1, 4}) {
					bubble(t, fmt.Sprintf("%s, %s, load %v, %d at a time", name, wait.name, load, n), func(t *testing.T) {
						opts := map[int][]wllock.CallOption{4: {wllock.Permits(4)}}[n]
						const callers = 8000
						could, _, without := shopping(t, stays, load, n, callers, wait.draw, opts...)
						served, shed, inVain := shopping(t, stays, load, n, callers, wait.draw, append(opts, wllock.WithShedHopeless())...)
						t.Logf("served %d of %d; refused %d; waited in vain %d, without the option %d", served, could, shed, inVain, without)
						require.Greater(t, served*100, could*96)
						most := map[string]int{"constant": 1, "uniform": 10, "exponential": 15, "one in ten is long": 30}[name]
						require.LessOrEqual(t, inVain*100, shed*most)
					})
				}
			}
		}
	}
}

// learn lets l measure turns of 10 ms.
func learn(t testing.TB, l *wllock.Locker) {
	for range 40 {
		err := l.Do(context.Background(), "n", "k", takes(10*time.Millisecond), wllock.WithShedHopeless(), wllock.WithWait(time.Hour))
		require.NoError(t, err)
	}
}

func TestShedHopelessWithConstantTurns(t *testing.T) {
	scene(t, "it is exact", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		learn(t, l)
		release := hold(t, l, "n", "k")
		for range 5 {
			started(l, keys("k"), nothing)
		}
		begin, short := time.Now(), within(t, 40*time.Millisecond)
		for _, err := range []error{
			l.Do(short, "n", "k", never(t), wllock.WithShedHopeless()),
			l.Do(short, "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(time.Hour)),
			l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(40*time.Millisecond)),
		} {
			e := refusal(t, err, wllock.ErrQueueFull, wllock.TierLocal)
			require.NotErrorIs(t, err, wllock.ErrWaitTimeout)
			require.InDelta(t, 50*time.Millisecond, e.RetryAfter, float64(time.Millisecond))
		}
		require.Zero(t, time.Since(begin), "at once")
		require.EqualValues(t, 3, l.Stats().Total.Shed)

		enough := started(l, keys("k"), nothing, wllock.WithShedHopeless(), wllock.WithWait(80*time.Millisecond))
		unlimited := started(l, keys("k"), nothing, wllock.WithShedHopeless())
		require.EqualValues(t, 7, l.Stats().Total.Waiting)
		release()
		require.NoError(t, <-enough)
		require.NoError(t, <-unlimited)
	})

	// Readers enter together, however many they are.
	scene(t, "it does not count readers ahead", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		learn(t, l)
		release := hold(t, l, "n", "k")
		for range 100 {
			started(l, keys("k"), nothing, wllock.Shared())
		}
		got := started(l, keys("k"), nothing, wllock.WithShedHopeless(), wllock.WithWait(40*time.Millisecond))
		release()
		require.NoError(t, <-got)
	})

	scene(t, "it knows nothing at first", func(t *testing.T, l *wllock.Locker, _ *memlock.Backend) {
		defer hold(t, l, "n", "k")()
		for range 50 {
			err := l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(time.Nanosecond))
			require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		}
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.NoWait())
		require.ErrorIs(t, err, wllock.ErrHeld)
	})
}
