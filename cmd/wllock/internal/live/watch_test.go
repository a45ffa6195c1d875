package live

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// watching begins a Watch that ends with the test. It looks by look.
func watching(t *testing.T, s *shop, runs func(context.Context) ([]distributed.Runs, error)) (look func() View) {
	w := NewWatch(s, Options{Prefix: "shop:", Shown: strings.Clone, Interval: 2 * time.Second}, runs)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return func() View {
		v, err := w.View(t.Context(), func(string) bool { return true }, 20)
		require.NoError(t, err)
		return v
	}
}

// However many look, the service does what it does for one, and nothing when none looks.
func TestWatchersShareTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 20_000, took: 9 * time.Millisecond} // which is more than are read at first
		look := watching(t, s, nil)
		v := look()
		require.Len(t, v.Locks, 20)
		require.Equal(t, v.Held-20, v.MoreLocks)
		atFirst, began := s.listed.Load(), time.Now()
		require.Positive(t, atFirst)
		for time.Since(began) < 12*time.Second {
			var crowd sync.WaitGroup
			for range 8 {
				crowd.Go(func() { look() })
			}
			crowd.Wait()
			time.Sleep(3 * time.Second)
		}
		took := time.Since(began)
		require.LessOrEqual(t, s.listed.Load()-atFirst, int64(took.Seconds()*pace)+perPage)
		require.LessOrEqual(t, s.inspect.Load(), int64(60*took.Seconds()))
		v = look()
		require.True(t, v.Complete)
		require.Equal(t, 20_000, v.Held)
		require.Equal(t, "shop:n:019999", v.Locks[0].Key)

		time.Sleep(attention + 5*time.Second)
		listed, inspected := s.listed.Load(), s.inspect.Load()
		time.Sleep(time.Hour)
		require.Equal(t, listed, s.listed.Load())
		require.Equal(t, inspected, s.inspect.Load())
	})
}

// Waiters have names in the first view, and keep them. No other view waits for them.
func TestWaitersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 3, took: time.Millisecond}
		look := watching(t, s, nil)
		for n := range 10 {
			began := time.Now()
			v := look()
			require.Equal(t, n > 0, time.Since(began) == 0)
			require.Equal(t, "shop:n:000002", v.Locks[0].Key)
			require.Equal(t, "db", v.Locks[0].Waiters[0].Instance)
			time.Sleep(700 * time.Millisecond)
		}
	})
}

// While the backend is away, all that it told last stays, and how old that is. What it says then is shown alone.
func TestAnOutageIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 3, took: time.Millisecond}
		look := watching(t, s, nil)
		began := time.Now()
		require.NoError(t, look().Err)
		s.away.Store(true)
		for range 50 { // which is longer than what was known is shown beside new answers
			time.Sleep(time.Second)
			look()
		}
		v := look()
		require.EqualError(t, v.Err, "away")
		require.Len(t, v.Locks, 3)
		require.WithinRange(t, v.Answered, began, began.Add(time.Second))
		require.WithinRange(t, v.Since, v.Answered, began.Add(4*time.Second))
		s.locks = 2
		s.away.Store(false)
		time.Sleep(2 * time.Second)
		v = look()
		require.NoError(t, v.Err)
		require.Len(t, v.Locks, 2)
		require.WithinDuration(t, time.Now(), v.Answered, 3*time.Second)
	})
}

// A backend that says nothing is not available before its time is over, and who looks does not wait for that.
func TestASilentBackendIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 3, took: 10 * time.Second}
		look := watching(t, s, nil)
		began := time.Now()
		v := look()
		require.ErrorIs(t, v.Err, errSilent)
		require.Equal(t, began, v.Since)
		require.Zero(t, v.Answered)
		require.LessOrEqual(t, time.Since(began), firstView)
		time.Sleep(time.Until(began.Add(s.took + time.Second)))
		require.NoError(t, look().Err)
	})
}

// What nobody has looked at for long is not shown beside what is true now.
func TestALongPauseIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 30_000, took: 9 * time.Millisecond} // which is more than are read at first
		look := watching(t, s, nil)
		look()
		time.Sleep(time.Hour)
		synctest.Wait()
		s.locks = 25_000
		v := look()
		require.False(t, v.Complete)
		require.Less(t, v.Held, 25_000)
		require.Less(t, time.Since(v.Since), time.Second, "it was not asked meanwhile")
	})
}

// Jobs that failed come first, then those that ran last. An error leaves what is known.
func TestJobsOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(key, result string, ago time.Duration) distributed.Runs {
			return distributed.Runs{Last: distributed.Run{Key: "shop:cron:" + key, Result: result, Began: time.Now().Add(-ago)}}
		}
		var fails atomic.Bool
		look := watching(t, &shop{locks: 2}, func(context.Context) ([]distributed.Runs, error) {
			if fails.Load() {
				return nil, errors.New("no right")
			}
			return []distributed.Runs{run("a", "ok", time.Hour), run("b", "ok", time.Minute), run("c", "exit 1", 2*time.Hour)}, nil
		})
		keys := func(v View) (all string) {
			for _, r := range v.Jobs {
				all += strings.TrimPrefix(r.Last.Key, "shop:cron:")
			}
			return all
		}
		v := look()
		require.Equal(t, "cba", keys(v))
		require.Equal(t, 1, v.Failed)
		fails.Store(true)
		time.Sleep(runsAfter + time.Second)
		v = look()
		require.Equal(t, "cba", keys(v))
		require.EqualError(t, v.JobsErr, "no right")
	})
}
