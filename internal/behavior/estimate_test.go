package behavior

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// shedLoad is a steady load of one key at one and a half times its capacity.
type shedLoad struct {
	name string
	hold func(r *rand.Rand) time.Duration // 10 ms on average
	at   float64                          // so many at a time
}

var shedLoads = []shedLoad{
	{"constant", func(*rand.Rand) time.Duration { return 10 * time.Millisecond }, 1},
	{"uniform", func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(20 * time.Millisecond))) }, 1},
	{"exponential", func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(10*time.Millisecond)) }, 1},
	{"one in ten is long", func(r *rand.Rand) time.Duration {
		if r.IntN(10) == 0 {
			return 55 * time.Millisecond
		}
		return 5 * time.Millisecond
	}, 1},
}

// shopper is one caller of the load.
type shopper struct {
	asked, gone time.Time // gone: no longer in line, and not inside
	budget      time.Duration
	shed        bool
	timedOut    bool
}

// run starts so many callers, one after the other, and returns how they ended.
func (s shedLoad) run(t *testing.T, seed uint64, callers int, opts ...wllock.CallOption) []*shopper {
	l, _ := newLocker(t, wllock.WithThreshold(wllock.Unlimited), wllock.WithDefaults(opts...))
	r := rand.New(rand.NewPCG(seed, 0))
	all := make([]*shopper, callers)
	for i := range all {
		budget := 50*time.Millisecond + time.Duration(r.Int64N(int64(450*time.Millisecond)))
		c, stay := &shopper{asked: time.Now(), budget: budget}, s.hold(r)
		all[i] = c
		go func() {
			err := l.Do(context.Background(), "n", "k", func(context.Context) error {
				time.Sleep(stay)
				return nil
			}, wllock.WithWait(budget))
			c.gone = time.Now()
			c.shed = errors.Is(err, wllock.ErrQueueFull)
			c.timedOut = errors.Is(err, wllock.ErrWaitTimeout)
		}()
		synctest.Wait()
		time.Sleep(time.Duration(r.ExpFloat64() * float64(10*time.Millisecond) / 1.5 / s.at))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return all
}

// count returns how many were refused at once, how many of them would have got their turn in time, which is when all
// earlier callers have gone, and how many waited in vain.
func count(all []*shopper) (shed, wrongly, inVain int) {
	var free time.Time // when all so far have gone
	for _, c := range all {
		switch {
		case c.shed:
			shed++
			if free.Before(c.asked.Add(c.budget)) {
				wrongly++
			}
			continue
		case c.timedOut:
			inVain++
		}
		if c.gone.After(free) {
			free = c.gone
		}
	}
	return shed, wrongly, inVain
}

func TestShedHopelessPrefersToAdmit(t *testing.T) {
	for _, load := range shedLoads {
		t.Run(load.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, seed = 8000, 1
				_, _, without := count(load.run(t, seed, callers))
				shed, wrongly, with := count(load.run(t, seed, callers, wllock.WithShedHopeless()))
				t.Logf("refused %d, wrongly %d; waited in vain %d, without the option %d", shed, wrongly, with, without)
				require.LessOrEqual(t, wrongly*100, shed, "seed %d", seed)
				require.Greater(t, shed, callers/50, "it refuses at all")
				require.Less(t, with, without)
			})
		})
	}
}

// learn lets l measure turns of 10 ms.
func learn(t testing.TB, l *wllock.Locker) {
	for range 40 {
		require.NoError(t, l.Do(context.Background(), "n", "k", func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}, wllock.WithShedHopeless(), wllock.WithWait(time.Hour)))
	}
}

func TestShedHopelessIsExactForConstantTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		learn(t, l)
		release := hold(t, l, "n", "k")
		for range 5 {
			go func() { _ = l.Do(context.Background(), "n", "k", nothing) }()
		}
		synctest.Wait()
		begin := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		for _, err := range []error{
			l.Do(short, "n", "k", never(t), wllock.WithShedHopeless()),
			l.Do(short, "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(time.Hour)),
			l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(40*time.Millisecond)),
		} {
			var e *wllock.Error
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, wllock.ErrQueueFull)
			require.NotErrorIs(t, err, wllock.ErrWaitTimeout)
			require.Equal(t, wllock.TierLocal, e.Tier)
			require.InDelta(t, 60*time.Millisecond, e.RetryAfter, float64(time.Millisecond))
		}
		require.Zero(t, time.Since(begin), "at once")
		require.EqualValues(t, 3, l.Stats().Total.Shed)

		long := make(chan error, 2) // these have time enough
		go func() {
			long <- l.Do(context.Background(), "n", "k", nothing, wllock.WithShedHopeless(), wllock.WithWait(80*time.Millisecond))
		}()
		go func() { long <- l.Do(context.Background(), "n", "k", nothing, wllock.WithShedHopeless()) }()
		synctest.Wait()
		require.EqualValues(t, 7, l.Stats().Total.Waiting)
		release()
		require.NoError(t, <-long)
		require.NoError(t, <-long)
	})
}

// Readers enter together, however many they are.
func TestShedHopelessDoesNotCountReadersAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		learn(t, l)
		release := hold(t, l, "n", "k")
		for range 100 {
			go func() { _ = l.Do(context.Background(), "n", "k", nothing, wllock.Shared()) }()
		}
		synctest.Wait()
		got := make(chan error, 1)
		go func() {
			got <- l.Do(context.Background(), "n", "k", nothing, wllock.WithShedHopeless(), wllock.WithWait(40*time.Millisecond))
		}()
		synctest.Wait()
		release()
		require.NoError(t, <-got)
	})
}

func TestShedHopelessKnowsNothingAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		defer hold(t, l, "n", "k")()
		for range 50 {
			err := l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.WithWait(time.Nanosecond))
			require.ErrorIs(t, err, wllock.ErrWaitTimeout)
		}
		err := l.Do(t.Context(), "n", "k", never(t), wllock.WithShedHopeless(), wllock.NoWait())
		require.ErrorIs(t, err, wllock.ErrHeld)
	})
}

// wronglyShed counts who was refused at once, and how many of them would have got one of n permits in time: when all earlier
// callers but n-1 have gone. The others wait in vain, or are served.
func wronglyShed(all []*shopper, n int) (shed, wrongly int) {
	last := make([]time.Time, n) // when the last n of those so far have gone, the last first
	for _, c := range all {
		if c.shed {
			shed++
			if last[n-1].Before(c.asked.Add(c.budget)) {
				wrongly++
			}
			continue
		}
		last = append(last, c.gone)
		slices.SortFunc(last, func(a, b time.Time) int { return b.Compare(a) })
		last = last[:n]
	}
	return shed, wrongly
}

// Callers that leave the line delay those behind them by no time, with permits as well.
func TestShedHopelessOfPermitsPrefersToAdmit(t *testing.T) {
	const n, callers, seed = 4, 8000, 1
	for _, load := range shedLoads {
		t.Run(load.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quick := shedLoad{load.name, load.hold, n}
				_, _, without := count(quick.run(t, seed, callers, wllock.Permits(n)))
				all := quick.run(t, seed, callers, wllock.Permits(n), wllock.WithShedHopeless())
				shed, wrongly := wronglyShed(all, n)
				_, _, with := count(all)
				t.Logf("refused %d, wrongly %d; waited in vain %d, without the option %d", shed, wrongly, with, without)
				require.LessOrEqual(t, wrongly*100, shed, "seed %d", seed)
				require.Greater(t, shed, callers/50, "it refuses at all")
				require.Less(t, with, without)
			})
		})
	}
}
