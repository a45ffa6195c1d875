package local_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

// With one holder and 64 callers that arrive at the same moment, exactly limit callers wait, and the rest is refused.
func TestThresholdIsExact(t *testing.T) {
	for _, limit := range []int{0, 1, 7, 31, 62, 63, 64, 100} {
		requireExact(t, limit, ask{Limit: limit}, local.ErrQueueFull)
	}
}

// The same of MaxAhead.
func TestMaxAheadIsExact(t *testing.T) {
	requireExact(t, 7, ask{Limit: local.Unlimited, MaxAhead: 7}, local.ErrHopeless)
	require.ErrorIs(t, local.ErrHopeless, local.ErrQueueFull)
}

func requireExact(t *testing.T, limit int, a ask, full error) {
	t.Helper()
	const callers = 64
	for range 50 {
		q := newQueue()
		served, refused := rush(t, q, callers, a, full)
		require.Equal(t, min(limit, callers), served, "limit %d", limit)
		require.Equal(t, callers-min(limit, callers), refused, "limit %d", limit)
		requireUnused(t, q)
	}
}

// rush lets callers enter at once while the key is held, until all of them wait or have been refused with full.
func rush(t *testing.T, q *queue, callers int, a ask, full error) (served, refused int) {
	var holder local.Turn[*baton]
	require.NoError(t, q.Enter(t.Context(), &holder, "k", exclusive))
	var all, here sync.WaitGroup
	var in, out atomic.Int64
	start := make(chan struct{})
	for range callers {
		here.Add(1)
		all.Go(func() {
			var turn local.Turn[*baton]
			here.Done()
			<-start
			switch err := q.Enter(t.Context(), &turn, "k", a); err {
			case nil:
				in.Add(1)
				if turn.Pass() == local.Kept {
					turn.Leave()
				}
			case full:
				out.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	here.Wait()
	close(start)
	for waiting := 0; waiting+int(out.Load()) < callers; _, waiting = inUse(q) {
	}
	passed := holder.Pass() == local.Passed
	if !passed {
		holder.Leave()
	}
	all.Wait()
	require.Equal(t, in.Load() > 0, passed)
	return int(in.Load()), int(out.Load())
}

// While callers come and go all the time, there are never more waiters than the limit, and no caller is refused while
// there is room: with 64 callers, at least one of which holds the turn, a limit of 63 is enough.
func TestThresholdWhileTheyComeAndGo(t *testing.T) {
	const callers, rounds = 64, 300
	for _, limit := range []int{callers - 2, callers - 1} {
		q := newQueue()
		var all sync.WaitGroup
		var refused, most atomic.Int64
		for range callers {
			all.Go(func() {
				var turn local.Turn[*baton]
				for range rounds {
					if q.Enter(t.Context(), &turn, "k", ask{Limit: limit}) != nil {
						refused.Add(1)
						continue
					}
					if _, n := inUse(q); int64(n) > most.Load() {
						most.Store(int64(n)) // only one has the turn
					}
					if turn.Pass() == local.Kept {
						turn.Leave()
					}
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, most.Load(), int64(limit))
		if limit == callers-1 {
			require.Zero(t, refused.Load(), "refused early")
		}
		requireUnused(t, q)
	}
}

// Nobody sees more callers counted than may wait, though those that have got their turns may not have run yet.
func TestWaitersAreCountedNoLongerThanTheLimitDoes(t *testing.T) {
	var counted atomic.Int64
	waits := func(a ask) ask {
		a.Limit, a.Waiting = 2, &counted
		return a
	}
	bubble(t, "passed on", func(t *testing.T, q *queue) {
		holder := arrives(q, "k", exclusive)
		all := arrive(q, "k", waits(exclusive), waits(exclusive))
		require.EqualValues(t, 2, counted.Load())
		require.Equal(t, local.Passed, holder.turn.Pass())
		require.EqualValues(t, 1, counted.Load(), "at once")
		synctest.Wait()
		end(q, all[0], all[1])
	})
	bubble(t, "shared, and again", func(t *testing.T, q *queue) {
		holder := arrives(q, "k", exclusive)
		all := arrive(q, "k", waits(shared), waits(shared))
		holder.turn.Leave()
		synctest.Wait()
		all[0].turn.Share()
		require.Zero(t, counted.Load(), "at once")
		synctest.Wait()
		all[1].again(waits(shared))
		arrive(q, "k", waits(exclusive))
		require.EqualValues(t, 1, counted.Load())
		q.Close()
		require.Zero(t, counted.Load())
		synctest.Wait()
		all[0].leaves()
	})
}
