package behavior

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// shedLoads are steady loads of one key, at one and a half times its capacity: how long each caller stays, 10 ms on average.

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

// shopper is one caller of the load.
type shopper struct {
	asked, gone time.Time // gone: no longer in line, and not inside
	budget      time.Duration
	shed        bool
	timedOut    bool
}

// shopping starts so many callers, one after the other, of which n are served at a time, and returns how they ended.
func shopping(t *testing.T, stays func(*rand.Rand) time.Duration, n, callers int, opts ...wllock.CallOption) []*shopper {
	l, _ := newLocker(t, wllock.WithThreshold(wllock.Unlimited), wllock.WithDefaults(opts...))
	r := rand.New(rand.NewPCG(1, 0))
	all := make([]*shopper, callers)
	for i := range all {
		budget := 50*time.Millisecond + time.Duration(r.Int64N(int64(450*time.Millisecond)))
		c, stay := &shopper{asked: time.Now(), budget: budget}, stays(r)
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
		time.Sleep(time.Duration(r.ExpFloat64() * float64(10*time.Millisecond) / 1.5 / float64(n)))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return all
}

// count returns how many were refused at once, how many of them would have got one of the n turns in time, which is when all earlier
// callers but n-1 have gone, and how many waited in vain.
func count(all []*shopper, n int) (shed, wrongly, inVain int) {
	last := make([]time.Time, n) // when the last n of those so far have gone, the last first
	for _, c := range all {
		if c.shed {
			shed++
			if last[n-1].Before(c.asked.Add(c.budget)) {
				wrongly++
			}
			continue
		}
		if c.timedOut {
			inVain++
		}
		last = append(last, c.gone)
		slices.SortFunc(last, func(a, b time.Time) int { return b.Compare(a) })
		last = last[:n]
	}
	return shed, wrongly, inVain
}

func TestShedHopelessPrefersToAdmit(t *testing.T) {
	const callers = 8000
	for name, stays := range shedLoads {
		for n, opts := range map[int][]wllock.CallOption{1: nil, 4: {wllock.Permits(4)}} {
			bubble(t, fmt.Sprint(name, ", at a time: ", n), func(t *testing.T) {
				_, _, without := count(shopping(t, stays, n, callers, opts...), n)
				shed, wrongly, with := count(shopping(t, stays, n, callers, append(opts, wllock.WithShedHopeless())...), n)
				t.Logf("refused %d, wrongly %d; waited in vain %d, without the option %d", shed, wrongly, with, without)
				require.LessOrEqual(t, wrongly*100, shed)
				require.Greater(t, shed, callers/50, "it refuses at all")
				require.Less(t, with, without)
			})
		}
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
			require.InDelta(t, 60*time.Millisecond, e.RetryAfter, float64(time.Millisecond))
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
}

// Readers enter together, however many they are.
func TestShedHopelessDoesNotCountReadersAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		learn(t, l)
		release := hold(t, l, "n", "k")
		for range 100 {
			started(l, keys("k"), nothing, wllock.Shared())
		}
		got := started(l, keys("k"), nothing, wllock.WithShedHopeless(), wllock.WithWait(40*time.Millisecond))
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
